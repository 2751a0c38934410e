"""What is folded at once, or left out of a bundle, changes nothing of what is there afterwards."""

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from levelog import Level, Operator
from levelog_base.wire.objects import Version
from levelog_base.wire.records import HistoryReverted, LoggedRecord
from levelog_base.wire.subjects import partition_of
from levelog_history.reach import Moment
from levelog_processors.program import Program
from levelog_replay import tape
from levelog_replay.bundles.needed import Needed
from levelog_replay.tape import Rebuilt, Tape
from rigs.histories import CHANGES, PARTITIONS, Changes, Told, Web, images, told
from rigs.run.examples import examples
from rigs.webs import NOON, WEBS, lists_done, logged, web

op = Operator("webs")
op.index(images)


@op.view
def pods(web: Web) -> Level[int]:
    return Level(desired=web.spec.replicas, actual=web.spec.replicas)


def shown(rebuilt: Rebuilt) -> list[Any]:
    """All that tells of objects."""
    state = rebuilt.state
    return [state.objects, state.buckets.by_key, state.syncs, state.tombstones]


async def folded(records: Sequence[LoggedRecord], moments: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """State at the end, folded record by record and up to some moments."""
    history = Told(records)
    one, other = Rebuilt(Program([op]), history.origin), Rebuilt(Program([op]), history.origin)
    for each in records:
        one.fold([each])
    read = Tape(history, [other])
    for moment in (*sorted(moments), history.last):
        await read.fold_up_to([moment] * PARTITIONS)
    assert read.records == len(records)
    assert not other.state.wakes.pending, "what was decided is known"
    return shown(one), shown(other)


@settings(max_examples=examples(15), deadline=None)
@given(CHANGES, st.lists(st.integers(0, 25), max_size=3), st.sampled_from([0, 5000, 2**26]))
def test_invariant_3_state_is_the_same_however_records_fall_into_batches(
    changes: Changes, moments: Sequence[int], window: int
) -> None:
    with patch.object(tape, "WINDOW_BYTES", window):
        one, other = asyncio.run(folded(told(changes), moments))
    assert one == other


def test_invariant_3_entries_are_kept_where_the_next_version_makes_the_index_raise() -> None:
    changes = [("seen", "shop", 1, "a", 1), ("seen", "shop", 1, "b", 2), ("seen", "shop", 1, "bad", 1)]
    one, other = asyncio.run(folded(told(changes), []))
    assert one == other
    assert list(other[1]["webs/images", '"b"'].values()) == [b"2"]


async def cut_off(records: Sequence[LoggedRecord], start: int, behind: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """State at a moment and at the end: of all records, and of those that a bundle which begins there has."""
    history = Told(records)
    folded = [max(start - each, 0) for each in behind]
    needed = await Needed.find(history, Moment(sequence=start), folded, (), history.last)
    found: list[list[Any]] = []
    for each in (records, [record for record in records if needed.has(record)]):
        rebuilt = Rebuilt(Program([op]), history.origin)
        before = [record for record in each if record.sequence <= folded[record.partition]]
        rebuilt.fold(before)
        at = deepcopy(shown(rebuilt))
        rebuilt.fold(record for record in each if record not in before)
        found.append([*at[:-1], *shown(rebuilt)[:-1]])
    return found[0], found[1]


@settings(max_examples=examples(60), deadline=None)
@given(CHANGES, st.integers(1, 40), st.lists(st.integers(0, 8), min_size=2, max_size=2))
def test_what_was_replaced_before_a_bundle_begins_is_not_missed(
    changes: Sequence[tuple[str, str, int, str, int]], start: int, behind: Sequence[int]
) -> None:
    fine = [(*each[:3], "a" if each[3] == "bad" else each[3], each[4]) for each in changes]
    one, other = asyncio.run(cut_off(told(fine), start, behind))
    assert one == other


async def test_a_bundle_begins_with_what_there_was() -> None:
    changes = [("seen", name, 1, "a", number) for number in range(4) for name in ("shop", "blog")]
    records = told([*changes[:4], ("deleted", "blog", 1, "a", 1), *changes[4:]])
    history = Told(records)
    needed = await Needed.find(history, Moment(sequence=6), [9, 9], (), len(records) - 1)
    assert history.ended == history.reads  # else the reader of a log would stay open
    assert [int(each.sequence) for each in records if needed.has(each)] == [5, 6, 7, 8, 9]
    assert needed.begins.sequence == 6


@pytest.mark.parametrize("is_reverted", [False, True])
async def test_a_list_that_the_fold_passes_over_leaves_nothing_out_of_a_bundle(is_reverted: bool) -> None:
    """A list in an older API version, by a process that does not know the newer one; or of a history that went back."""
    key = web("shop", 11).key
    partition = partition_of(key, PARTITIONS)
    (first, last), (begun, ended) = lists_done(WEBS, 10), lists_done(WEBS, 50)
    said: list[Any] = [replace(first, api_version="v1"), replace(last, api_version="v1"), web("shop", 11)]
    if is_reverted:
        said += [
            replace(begun, sync_id="late"),
            HistoryReverted(resource=WEBS, since=Version(50), version=Version(12), time=NOON),
        ]
        said += [replace(ended, sync_id="late")]
    else:
        said += [replace(mark, sync_id="late", api_version="v1alpha1") for mark in (begun, ended)]
    records = logged(said, partitions=PARTITIONS, partition=partition)
    one, other = await cut_off(records, len(records), [0, 0])
    assert one == other
    assert list(one[0]) == [str(key)], "the object is there all the time"
