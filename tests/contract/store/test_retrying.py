"""Levels that are to be tried again: their wakeups are due, and their writes."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert, select, update

from levelog_store.actuate.claims import claim
from levelog_store.connect.database import Database
from levelog_store.decide.inputreads import read_wakes
from levelog_store.deliver.positions import CallHold, lock_due_times, release_holds, retry_holds, write_holds
from levelog_store.fold.changes import Wake
from levelog_store.fold.deletions import forget_handled
from levelog_store.fold.levelwrites import retry_levels, wake_stuck, write_wakes
from levelog_store.tables import call_holds, intents, levels, objects, wakeups
from rigs.intents import NOON, decide, intent, intents_by_key
from rigs.leasing import SCOPE
from rigs.locks import until_one_waits

VIEW, PARENT = "webs/pods", "webs.example.com/default/shop"
FAR = datetime(2100, 1, 1, tzinfo=UTC)


async def level(database: Database, parent: str, status: str) -> None:
    row = {"scope": 1, "view": VIEW, "parent": parent, "partition": 3, "parent_uid": "u", "status": status}
    row |= dict.fromkeys(("round", "attempts", "evaluations"), 1)
    row |= dict.fromkeys(("reason", "inputs", "reads", "decided_inputs"), "")
    async with database.transaction() as connection:
        await connection.execute(insert(levels).values(**row, cause=9, evaluated_at=NOON))


async def retry(database: Database, *parents: str) -> None:
    await retry_levels(database, SCOPE, [(VIEW, parent) for parent in parents])


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


async def test_who_tries_levels_again_holds_no_wakeup_while_another_one_is_locked(shared: Database) -> None:
    """A processor that holds all partitions locks them in no order."""
    parents = ["webs.example.com/default/mall", PARENT]
    for parent in parents:
        await level(shared, parent, "drifting")
    await retry(shared, *parents)
    async with shared.transaction() as deciding:
        await write_wakes(deciding, SCOPE, {(VIEW, PARENT): Wake(3, (12,))})
        await deciding.execute(select(1))  # with which it is sent
        task = asyncio.create_task(retry(shared, *parents))
        await until_one_waits(shared)
        await write_wakes(deciding, SCOPE, {(VIEW, parents[0]): Wake(3, (12,))})
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
    stuck, *others = (f"webs.example.com/default/{name}" for name in ("stuck", "writing", "woken", "failed"))
    for parent in (stuck, *others[:2]):
        await level(database, parent, "settling")
    await level(database, others[2], "failed")
    settled = {"parent": stuck, "parent_uid": "u"}
    await decide(database, intent("pods/default/a", state="settled", **settled))
    await decide(database, intent("pods/default/b", parent=others[0], parent_uid="u", state="written"))
    async with database.transaction() as connection:
        await write_wakes(connection, SCOPE, {(VIEW, others[1]): Wake(3, (9,))})
        assert await wake_stuck(connection, SCOPE) == 1
        woken = (await connection.execute(select(wakeups.c.parent).where(wakeups.c.due_at.is_not(None)))).scalars()
        assert woken.all() == [stuck]
        assert await wake_stuck(connection, SCOPE) == 0


async def test_what_a_handler_of_a_deletion_gave_up_is_forgotten(database: Database) -> None:
    ended = [f"webs.example.com:deleted/default/{name}:u" for name in ("given-up", "tried-again")]
    values = {"scope": 1, "partition": 3, "resource": "webs.example.com:deleted", "namespace": "default", "uid": "u"}
    values |= {"version": 1, "sequence": 1, "is_deleting": False, "body": b"{}"}
    for parent in ended:
        await level(database, parent, "failed")
    async with database.transaction() as connection:
        for parent in ended:
            await connection.execute(insert(objects).values(object=parent, name=parent.rpartition("/")[2], **values))
        await connection.execute(update(levels).where(levels.c.parent == ended[1]).values(recheck_at=FAR))
        assert await forget_handled(connection, SCOPE) == 1
        assert (await connection.execute(select(objects.c.object))).scalars().all() == ended[1:]
        assert (await connection.execute(select(levels.c.parent))).scalars().all() == ended[1:]


def hold(name: str) -> CallHold:
    """An object whose call has failed."""
    told: dict[str, Any] = {"partition": 3, "position": 1, "attempts": 1, "error": "away", "since": NOON, "due_at": FAR}
    return CallHold(handler="webs/record", object=f"webs.example.com/default/{name}", **told)


async def test_any_number_of_calls_is_held_and_made_again_at_once(database: Database) -> None:
    """As when what they all call is away for a while."""
    holds = [hold(f"shop-{number:05}") for number in range(20_000)]
    names = [(each.handler, each.object) for each in holds]
    async with database.transaction() as connection:
        await write_holds(connection, SCOPE, holds)
        assert await lock_due_times(connection, SCOPE, names[1:]) == dict.fromkeys(names[1:], FAR)
        await release_holds(connection, SCOPE, names[:-1])
        assert (await connection.execute(select(call_holds.c.object))).scalars().all() == [holds[-1].object]


async def test_who_tries_held_calls_again_holds_none_while_another_one_is_locked(shared: Database) -> None:
    """A processor locks those that it changes before those that it deletes."""
    holds = [hold(name) for name in "ab"]
    names = [(each.handler, each.object) for each in holds]
    async with shared.transaction() as connection:
        await write_holds(connection, SCOPE, holds)
    async with shared.transaction() as handling:
        await lock_due_times(handling, SCOPE, names[1:])
        task = asyncio.create_task(retry_holds(shared, SCOPE, names))
        await until_one_waits(shared)
        await release_holds(handling, SCOPE, names[:1])
    await task
    async with shared.reading() as connection:
        assert (await connection.execute(select(call_holds.c.due_at < FAR))).scalars().all() == [True]
