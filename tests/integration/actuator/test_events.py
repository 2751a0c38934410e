"""Kubernetes Events: written once for each intent, counted where they are the same, and never in anybody's way."""

from typing import Any

import pytest
from msgspec.structs import replace

from levelog_actuator.events import LAST_INTENT
from levelog_base.wire.canonical import canonical
from rigs.acting import ACTUATOR, QUICK, Acting, writes
from rigs.apirequests import asks
from rigs.faults import Action, FailAfter, FailBefore, ForwardTwice, Refuse
from rigs.intents import intent

LOSSES = (FailAfter(), FailAfter(how="reset"), FailBefore(), ForwardTwice(), Refuse(code=503), Refuse(code=429))
FEW = replace(QUICK, attempts=3)


def missing(acting: Acting, name: str = "shop.0a", **body: Any) -> dict[str, Any]:
    """An Event as a decision asks for it; the same name is the same Event."""
    regarding = {"apiVersion": "example.com/v1", "kind": "Web", "name": "shop", "uid": "u"}
    regarding["namespace"] = acting.namespace
    content = {"type": "Warning", "reason": "BackupMissing", "action": "Check", "note": "there is no backup"}
    return intent(
        f"events.events.k8s.io/{acting.namespace}/{name}",
        verb="event",
        body={**content, "regarding": regarding, "reportingController": "levelog-webs", **body},
        kind="Event",
        is_watched=False,
    )


async def events(acting: Acting) -> list[Any]:
    _, found = await acting.api.request("GET", acting.path("events.events.k8s.io"))
    return list(found["items"])


async def test_the_same_event_again_raises_the_count_of_the_one_that_is_there(acting: Acting) -> None:
    async with acting.running():
        first = await acting.carried_out(missing(acting))
        (told,) = await events(acting)
        more = await acting.carried_out(missing(acting), missing(acting))
        other = await acting.carried_out(missing(acting, "shop.0b", type="Normal", note="there is one"))
    assert {each.outcome for each in (*first, *more, *other)} == {"written"}
    counted, single = sorted(await events(acting), key=lambda event: str(event["metadata"]["name"]))
    assert (told["type"], told["reason"], told["action"]) == ("Warning", "BackupMissing", "Check")
    assert (told["note"], told["regarding"]["name"]) == ("there is no backup", "shop")
    assert told["reportingController"] == "levelog-webs"
    assert told["reportingInstance"]
    assert "series" not in told
    assert counted["series"]["count"] == 3
    assert counted["eventTime"] == told["eventTime"] <= counted["series"]["lastObservedTime"]
    assert (single["type"], single.get("series")) == ("Normal", None)


@pytest.mark.parametrize("action", LOSSES, ids=str)
async def test_invariant_7_an_event_is_counted_once_whatever_is_lost(on_sandbox: Acting, action: Action) -> None:
    acting = on_sandbox
    rule = acting.proxy.add(action, writes, nth=1, times=1)
    patched = acting.proxy.add(action, asks("patch", user_agent=ACTUATOR), nth=1, times=1)
    async with acting.running():
        first = await acting.carried_out(missing(acting))
        second = await acting.carried_out(missing(acting))
    assert rule.applied
    assert patched.applied
    (event,) = await events(acting)
    assert event["series"]["count"] == 2
    assert event["metadata"]["annotations"][LAST_INTENT] == second[0].key
    assert [each.outcome in ("written", "unchanged") for each in (*first, *second)] == [True, True]


async def test_intents_that_tell_of_the_same_occurrence_count_once(on_sandbox: Acting) -> None:
    acting = on_sandbox
    told = [{**missing(acting), "options": canonical({"name": name})} for name in ("failed-1", "failed-1", "failed-2")]
    async with acting.running():
        outcomes = [(await acting.carried_out(each))[0].outcome for each in told]
    assert outcomes == ["written", "unchanged", "written"]
    assert [event["series"]["count"] for event in await events(acting)] == [2]


async def test_an_event_that_somebody_else_counts_at_the_same_time_is_counted_too(on_sandbox: Acting) -> None:
    acting = on_sandbox
    async with acting.running():
        await acting.carried_out(missing(acting))
        conflict = acting.proxy.add(Refuse(code=409), asks("patch", user_agent=ACTUATOR))
        (receipt,) = await acting.carried_out(missing(acting))
    assert conflict.applied
    assert (receipt.outcome, receipt.attempts) == ("written", 2)
    assert [event["series"]["count"] for event in await events(acting)] == [2]


@pytest.mark.parametrize(("code", "attempts"), [(403, 1), (500, 3)])
async def test_an_event_that_is_refused_has_failed(on_sandbox: Acting, code: int, attempts: int) -> None:
    acting = on_sandbox
    acting.proxy.add(Refuse(code=code), writes, times=None)
    async with acting.running(FEW):
        (receipt,) = await acting.carried_out(missing(acting))
    assert (receipt.outcome, receipt.attempts) == ("failed", attempts)
    assert str(code) in receipt.error


async def test_an_event_whose_write_was_stored_waits_for_no_fold(on_sandbox: Acting) -> None:
    async with on_sandbox.running():
        (receipt,) = await on_sandbox.carried_out(missing(on_sandbox))
    assert (await on_sandbox.rows())[receipt.key]["state"] == "settled"
