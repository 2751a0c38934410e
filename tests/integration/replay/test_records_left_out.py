"""Versions of an object that the next one replaces are not folded, and the tables are the same."""

import asyncio
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from levelog import Level, Operator
from levelog.wire.records import LoggedRecord
from levelog_history.reach import Moment
from levelog_processors.program import Program
from levelog_replay import tape
from levelog_replay.bundles.cutting import Trim
from levelog_replay.scratch import Scratch, open_scratch
from levelog_replay.tape import HistoryFolder
from levelog_store.tables import index_entries, objects, syncs, tombstones, wakeups
from rigs.histories import CHANGES, PARTITIONS, Changes, Told, Web, images, told
from rigs.run.examples import examples

op = Operator("webs")
op.index(images)


@op.view
def pods(web: Web) -> Level[int]:
    return Level(desired=web.spec.replicas, actual=web.spec.replicas)


async def tables(scratch: Scratch) -> list[Any]:
    """All that tells of objects."""
    found: list[Any] = []
    async with scratch.database.reading() as connection:
        for table in (objects, index_entries, syncs, tombstones):
            rows = await connection.execute(select(table).order_by(*table.primary_key))
            found.append([tuple(row) for row in rows])
    return found


async def folded(
    records: Sequence[LoggedRecord], moments: Sequence[int], size: int
) -> tuple[list[Any], list[Any], int]:
    """Tables at the end, folded record by record and up to some moments, and how often the history was read."""
    history = Told(records, size)
    program = Program([op])
    async with (
        open_scratch(program, history.origin) as one,
        open_scratch(program, history.origin, is_waking=False) as other,
    ):
        for each in records:
            await one.fold([each])
        folder = HistoryFolder(history, [other])
        for moment in (*sorted(moments), history.last):
            await folder.fold_up_to([moment] * PARTITIONS)
        assert folder.records == len(records)
        async with other.database.reading() as connection:
            assert not (await connection.execute(select(wakeups))).all(), "what was decided is known"
        return await tables(one), await tables(other), history.reads


@settings(max_examples=examples(15), deadline=None)
@given(CHANGES, st.lists(st.integers(0, 25), max_size=3), st.sampled_from([1, 7, 1000]), st.sampled_from([1, 5, 2000]))
def test_invariant_3_what_the_next_version_replaces_need_not_be_folded(
    changes: Changes, moments: Sequence[int], size: int, fold_batch: int
) -> None:
    with patch.object(tape, "FOLD_BATCH", fold_batch):
        one, other, _ = asyncio.run(folded(told(changes), moments, size))
    assert one == other


def test_invariant_3_entries_of_a_version_that_was_left_out_are_kept_where_the_next_one_makes_the_index_raise() -> None:
    changes = [("seen", "shop", 1, "a", 1), ("seen", "shop", 1, "b", 2), ("seen", "shop", 1, "bad", 1)]
    one, other, reads = asyncio.run(folded(told(changes), [], 1000))
    assert one == other
    assert [(entry[2], entry[5]) for entry in other[1]] == [('"b"', b"2")]
    assert reads == 2


def test_a_version_that_the_next_one_replaces_is_not_folded() -> None:
    changes = [("seen", "shop", 1, "a", number) for number in range(5)]
    history = Told(told(changes), 2)
    given = asyncio.run(_given(history))
    assert [[int(each.sequence) for each in stretch.records] for stretch in given] == [[5]]
    assert given[0].thinned == {"webs.example.com/default/shop": 1}


async def _given(history: Told) -> list[tape.Stretch]:
    read = tape.Tape(history.records(), is_thinned=lambda _: True)
    return [stretch async for stretch in read.up_to([history.last] * PARTITIONS)]


async def cut_off(records: Sequence[LoggedRecord], start: int, behind: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """Tables at a moment and at the end: of all records, and of those that a bundle which begins there has."""
    history = Told(records, 7)
    folded = [max(start - each, 0) for each in behind]
    cut = await Trim.find(history, Moment(sequence=start), folded, (), history.last)
    kept = [each for each in records if cut.keeps(each)]
    found: list[list[Any]] = []
    async with (
        open_scratch(Program([op]), history.origin) as one,
        open_scratch(Program([op]), history.origin) as other,
    ):
        for scratch, each in ((one, records), (other, kept)):
            before = [logged for logged in each if logged.sequence <= folded[logged.partition]]
            await scratch.fold(before)
            at = await tables(scratch)
            await scratch.fold([logged for logged in each if logged not in before])
            found.append([*at[:-1], *(await tables(scratch))[:-1]])
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
    cut = await Trim.find(Told(records, 3), Moment(sequence=6), [9, 9], (), 9)
    assert [int(each.sequence) for each in records if cut.keeps(each)] == [5, 6, 7, 8, 9]
    assert cut.begins.sequence == 6
