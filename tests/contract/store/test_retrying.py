"""Levels that are to be tried again: their wakeups are due, and their writes."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import insert, select

from levelog_store.actuate.claims import claim
from levelog_store.connect.database import Database
from levelog_store.decide.inputreads import read_wakes
from levelog_store.fold.changes import Wake
from levelog_store.fold.levelwrites import retry_levels, write_wakes
from levelog_store.tables import levels, wakeups
from rigs.intents import NOON, decide, intent, intents_by_key
from rigs.leasing import SCOPE

VIEW, PARENT = "webs/pods", "webs.example.com/default/shop"
FAR = datetime(2100, 1, 1, tzinfo=UTC)


async def level(database: Database, parent: str, status: str) -> None:
    row = {"scope": 1, "view": VIEW, "parent": parent, "partition": 3, "parent_uid": "u", "status": status}
    row |= dict.fromkeys(("round", "attempts", "evaluations"), 1)
    row |= dict.fromkeys(("reason", "inputs", "reads", "decided_inputs"), "")
    async with database.transaction() as connection:
        await connection.execute(insert(levels).values(**row, cause=9, evaluated_at=NOON))


async def retry(database: Database, *parents: str) -> None:
    async with database.transaction() as connection:
        await retry_levels(connection, SCOPE, [(VIEW, parent) for parent in parents])


async def test_a_level_without_a_wakeup_gets_one_that_is_due(database: Database) -> None:
    await level(database, PARENT, "failed")
    await retry(database, PARENT, "webs.example.com/default/unknown")
    async with database.reading() as connection:
        ((wake,), _) = await read_wakes(connection, SCOPE, [3], [VIEW], 10)
    assert (wake.parent, wake.partition, wake.cause, wake.due_at is not None) == (PARENT, 3, 9, True)


async def test_a_wakeup_that_waits_for_its_time_is_due_and_another_one_than_was_seen(database: Database) -> None:
    await level(database, PARENT, "drifting")
    waiting = {"scope": 1, "view": VIEW, "parent": PARENT, "partition": 3, "cause": 11, "generation": 4, "due_at": FAR}
    async with database.transaction() as connection:
        await connection.execute(insert(wakeups).values(**waiting))
    await retry(database, PARENT)
    async with database.reading() as connection:
        ((wake,), _) = await read_wakes(connection, SCOPE, [3], [VIEW], 10)
        assert len((await connection.execute(select(wakeups))).all()) == 1
    assert wake.cause == 11
    assert wake.generation != waiting["generation"]


async def test_a_level_that_is_to_be_tried_again_stays_so_when_a_fold_wakes_it(database: Database) -> None:
    others = "webs.example.com/default/mall"
    for parent in (PARENT, others):
        await level(database, parent, "drifting")
    async with database.transaction() as connection:
        far = {"scope": 1, "view": VIEW, "parent": others, "partition": 3, "cause": 9, "generation": 4, "due_at": FAR}
        await connection.execute(insert(wakeups).values(**far))
    await retry(database, PARENT)
    async with database.transaction() as connection:
        await write_wakes(connection, SCOPE, {(VIEW, parent): Wake(3, (12,)) for parent in (PARENT, others)})
    async with database.reading() as connection:
        (wakes, _) = await read_wakes(connection, SCOPE, [3], [VIEW], 10)
    assert {wake.parent: (wake.cause, wake.due_at is not None) for wake in wakes} == {
        PARENT: (12, True),
        others: (12, False),
    }


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
