"""Levels that are to be tried again: their wakeups are due, and their writes."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert, select, update

from levelog_store.actuate.claims import claim
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import PendingWake
from levelog_store.deliver.positions import read_held, write_held
from levelog_store.dialects import rows_of
from levelog_store.fold.levelwrites import retry_levels, wake_stuck
from levelog_store.fold.statereads import read_requested
from levelog_store.fold.statewrites import write_wakes_of
from levelog_store.rows import LevelRow, ViewParent
from levelog_store.tables import intents, levels, wakeups
from rigs.intents import NOON, decide, intent, intents_by_key
from rigs.leasing import SCOPE
from rigs.locks import until_one_waits

VIEW, PARENT = "webs/pods", "webs.example.com/default/shop"
FAR = datetime(2100, 1, 1, tzinfo=UTC)


async def level(database: Database, parent: str, status: Any) -> None:
    told: dict[str, Any] = {"round": 1, "attempts": 1, "evaluations": 1, "cause": 9, "evaluated_at": NOON}
    row = LevelRow(view=VIEW, parent=parent, partition=3, parent_uid="u", status=status, **told)
    async with database.transaction() as connection:
        await connection.execute(insert(levels), rows_of(SCOPE, [row]))


async def retry(database: Database, *parents: str) -> None:
    await retry_levels(database, SCOPE, [(VIEW, parent) for parent in parents])


def woken(parent: str) -> PendingWake:
    """As a record asks for it."""
    return PendingWake(view=VIEW, parent=parent, partition=3, cause=12, generation=1, due_at=None)


async def due(database: Database) -> Sequence[PendingWake]:
    """What a processor finds that others ask for."""
    async with database.reading() as connection:
        return (await read_requested(connection, SCOPE, [3])).wakes


async def test_a_level_without_a_wakeup_gets_one_that_is_due(database: Database) -> None:
    await level(database, PARENT, "failed")
    await retry(database, PARENT, "webs.example.com/default/unknown")
    (wake,) = await due(database)
    assert (wake.parent, wake.partition, wake.cause, wake.due_at is not None) == (PARENT, 3, 9, True)


async def test_a_wakeup_that_waits_for_its_time_is_due_and_another_one_than_was_seen(database: Database) -> None:
    await level(database, PARENT, "drifting")
    waiting = {"scope": 1, "view": VIEW, "parent": PARENT, "partition": 3, "cause": 11, "generation": 4, "due_at": FAR}
    async with database.transaction() as connection:
        await connection.execute(insert(wakeups).values(**waiting))
    await retry(database, PARENT)
    (wake,) = await due(database)
    assert wake.cause == 11
    assert wake.generation != waiting["generation"]


async def test_a_level_that_is_to_be_tried_again_stays_so_until_its_wakeup_was_seen(database: Database) -> None:
    others = "webs.example.com/default/mall"
    for parent in (PARENT, others):
        await level(database, parent, "drifting")
    await retry(database, PARENT)
    (asked,) = await due(database)
    seen = {(VIEW, PARENT): asked.generation}
    for known, left in (({}, [asked]), (seen, [])):
        for wakes in ({(VIEW, parent): woken(parent) for parent in (PARENT, others)}, dict.fromkeys([*seen])):
            async with database.transaction() as connection:
                await write_wakes_of(connection, SCOPE, wakes, known)
            assert await due(database) == left


async def test_writes_that_wait_for_their_next_attempt_can_be_claimed_and_others_are_left(database: Database) -> None:
    await level(database, PARENT, "settling")
    waits = intent("pods/default/a", due_at=FAR, attempts=3, state="claimed")
    held = intent("pods/default/b", due_at=FAR, state="claimed", owner="other", expires_at=FAR)
    foreign = intent("pods/default/c", due_at=FAR, parent="webs.example.com/default/mall")
    await decide(database, waits, held, foreign)
    await retry(database, PARENT)
    async with database.transaction() as connection:
        claimed = await claim(connection, SCOPE, "me", limit=10, lease=timedelta(seconds=30))
    assert [(each.key, each.attempts, each.is_doubtful) for each in claimed] == [(waits["key"], 4, True)]
    rows = await intents_by_key(database)
    assert rows[held["key"]]["owner"] == "other"


async def test_who_tries_levels_again_holds_no_wakeup_while_another_one_is_locked(shared: Database) -> None:
    """A processor that holds all partitions locks them in no order."""
    parents = ["webs.example.com/default/mall", PARENT]
    for parent in parents:
        await level(shared, parent, "drifting")
    await retry(shared, *parents)
    async with shared.transaction() as deciding:
        await write_wakes_of(deciding, SCOPE, {(VIEW, PARENT): woken(PARENT)}, {})
        await deciding.execute(select(1))  # with which it is sent
        task = asyncio.create_task(retry(shared, *parents))
        await until_one_waits(shared)
        await write_wakes_of(deciding, SCOPE, {(VIEW, parents[0]): woken(parents[0])}, {})
        assert not task.done()
    await task


async def test_who_tries_levels_again_leaves_writes_that_are_being_changed(shared: Database) -> None:
    await level(shared, PARENT, "settling")
    rows = [intent(f"pods/default/{name}", due_at=FAR) for name in "abc"]
    await decide(shared, *rows)
    held = rows[1]["key"]
    async with shared.transaction() as deciding:
        await deciding.execute(update(intents).where(intents.c.key == held).values(state="superseded"))
        async with asyncio.timeout(30):
            await retry(shared, PARENT)
        left = await intents_by_key(shared)
        assert [left[row["key"]]["due_at"] < FAR for row in rows] == [True, False, True]


async def test_invariant_21_a_level_that_settles_without_a_write_under_way_is_woken(database: Database) -> None:
    stuck, *others = (f"webs.example.com/default/{name}" for name in ("stuck", "writing", "woken", "failed", "called"))
    for parent in (stuck, *others[:2]):
        await level(database, parent, "settling")
    await level(database, others[2], "failed")
    async with database.transaction() as connection:
        await write_held(connection, SCOPE, [held_call(others[3], "settling")])
    settled = {"parent": stuck, "parent_uid": "u"}
    await decide(database, intent("pods/default/a", state="settled", **settled))
    await decide(database, intent("pods/default/b", parent=others[0], parent_uid="u", state="written"))
    async with database.transaction() as connection:
        await write_wakes_of(connection, SCOPE, {(VIEW, others[1]): woken(others[1])}, {})
        assert await wake_stuck(connection, SCOPE) == 1
        found = await connection.scalars(select(wakeups.c.parent).where(wakeups.c.due_at.is_not(None)))
        assert found.all() == [stuck]
        assert await wake_stuck(connection, SCOPE) == 0


def held_call(parent: str, status: str) -> LevelRow:
    """An object whose call without records fails or runs."""
    told: dict[str, Any] = {"partition": 3, "parent_uid": "", "position": 1, "since": NOON, "recheck_at": FAR}
    return LevelRow(view="webs/record", parent=parent, status=status, attempts=1, **told)


async def test_any_number_of_calls_is_held_released_and_asked_for(database: Database) -> None:
    """As when what they all call is away for a while."""
    held = [held_call(f"webs.example.com/default/shop-{number:05}", "failed") for number in range(20_000)]
    names: list[ViewParent] = [(row.view, row.parent) for row in held]
    async with database.transaction() as connection:
        await write_held(connection, SCOPE, held)
        await write_held(connection, SCOPE, [], released=names[:-1])
        assert await read_held(connection, SCOPE, ["webs/record"], [3]) == held[-1:]
        assert await read_held(connection, SCOPE, ["webs/other"], [3]) == []
        assert await read_held(connection, SCOPE, ["webs/record"], [4]) == []
    await retry_levels(database, SCOPE, names[-2:])
    assert [(wake.view, wake.parent) for wake in await due(database)] == names[-1:]
