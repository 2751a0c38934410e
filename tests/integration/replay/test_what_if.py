"""`levelog what-if`: recorded history with a record left out, elsewhere or changed, decided again."""

import json
from contextlib import aclosing
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from levelog_replay.travel.edits import Edited, Edits
from rigs.histories import Told, told
from rigs.lastnight import BAD, FIXED, ORDERS, LastNight

Differing: TypeAlias = tuple[int, list[str] | None, list[str] | None]
"""Cause of a decision, and its writes before and after."""


async def differing(night: LastNight, *arguments: object) -> list[Differing]:
    """Cause of each decision that differs, and its writes before and after; the same on the bundle and the log."""
    found: list[list[Differing]] = []
    for options, env in night.sources:
        ended = await night.levelog.ends("what-if", BAD, *map(str, arguments), "--json", *options, env=env)
        told = json.loads(ended.stdout)
        assert ended.status == (0 if told["is_same"] else 1), ended
        found.append([(each["cause"], _writes(each["before"]), _writes(each["after"])) for each in told["differing"]])
    assert found[0] == found[1]
    return found[0]


def _writes(side: dict[str, Any] | None) -> list[str] | None:
    return None if side is None else [f"{each['verb']} {each['target']}" for each in side["intents"]]


async def test_without_the_record_that_caused_it_the_operator_deletes_nothing(night: LastNight) -> None:
    first, *_ = await differing(night, "--drop", night.stranger)
    assert first == (night.stranger, [f"delete {ORDERS}"], None)


async def test_a_field_of_one_record_is_changed(night: LastNight) -> None:
    [only] = await differing(night, "--set", night.scaled, "spec.replicas=1")
    assert only[0] == night.scaled


async def test_a_record_swapped_with_a_later_one_is_decided_on_there(night: LastNight) -> None:
    found = await differing(night, "--swap", night.stranger, night.scaled)
    assert found


async def test_a_late_receipt_settles_late(night: LastNight) -> None:
    causes = [cause for cause, *_ in await differing(night, "--delay-receipt", "3s")]
    assert causes[0] == night.gone, "the deletion is not settled before its receipt"


async def test_other_code_decides_on_the_changed_history(night: LastNight) -> None:
    found = await differing(night, "--set", night.stranger, "metadata.labels.app=shop", "--code", FIXED)
    assert (night.stranger, [f"delete {ORDERS}"], None) in found


@pytest.mark.parametrize("changes", [{}, {"swapped": (1, 3)}, {"delay": timedelta(seconds=3)}], ids=str)
async def test_whoever_stops_early_ends_what_changed_history_reads(changes: dict[str, Any]) -> None:
    history = Told(told([("seen", "shop", 1, "a", 1)] * 1500))
    async with aclosing(Edited(history, Edits(**changes)).records()) as records:
        assert await anext(records)
    assert history.ended == 1
