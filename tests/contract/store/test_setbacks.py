"""Times of the outbox that a clock has said which was ahead: they are stored, and moved by the jump."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from sqlalchemy import insert, select, update

from levelog_store.actuate import claims, heartbeats, outcomes
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.actuate.setbacks import plan_anew
from levelog_store.connect.database import Database
from levelog_store.fold.calls import is_time_to_record, note_recorded
from levelog_store.tables import actuators, intents, scopes
from rigs.intents import NOON, decide, intent
from rigs.leasing import SCOPE, scope_of

A, B = "pods/default/a", "pods/default/b"
LEASE: Final = timedelta(seconds=30)
HEARTBEAT: Final = timedelta(seconds=6)
SOON: Final = timedelta(minutes=1)
JUMPS: Final = pytest.mark.parametrize("jump", [timedelta(hours=1), timedelta(days=30)], ids=["an hour", "thirty days"])


async def claim(database: Database, owner: str) -> list[ClaimedIntent]:
    async with database.transaction() as connection:
        return await claims.claim(connection, SCOPE, owner, limit=100, lease=LEASE)


async def put_off(database: Database, delay: timedelta, *, is_doubtful: bool) -> str:
    """Claim a new intent and give it back."""
    (key,) = await decide(database, intent(A))
    (claimed,) = await claim(database, "one")
    later = outcomes.Postponement(
        key=key, claim=claimed.claim, delay=delay, error="", attempts=1, is_doubtful=is_doubtful
    )
    async with database.transaction() as connection:
        await outcomes.postpone(connection, SCOPE, "one", [later])
    return key


async def move(database: Database, jump: timedelta) -> None:
    """Let all that is stored of intents and actuators have been stored by a clock that was ahead."""
    async with database.transaction() as connection:
        for table, names in ((intents, ("due_at", "expires_at")), (actuators, ("expires_at",))):
            keys = list(table.primary_key)
            for row in (await connection.execute(select(table))).mappings().all():
                moved = {name: row[name] + jump for name in names if row[name] is not None}
                await connection.execute(update(table).where(*(key == row[key.name] for key in keys)).values(moved))


async def wait(database: Database) -> timedelta | None:
    """How long until the next intent is due."""
    async with database.reading() as connection:
        return (await claims.next_due(connection, SCOPE))[0]


async def plan(database: Database) -> None:
    async with database.transaction() as connection:
        await plan_anew(connection, SCOPE, lease=LEASE, heartbeat=HEARTBEAT)


@JUMPS
@pytest.mark.parametrize("is_doubtful", [False, True])
@pytest.mark.parametrize("delay", [timedelta(seconds=100), timedelta(days=30)])
async def test_a_retry_waits_from_now_on_as_long_as_it_was_put_off(
    database: Database, jump: timedelta, delay: timedelta, is_doubtful: bool
) -> None:
    await put_off(database, delay, is_doubtful=is_doubtful)
    await move(database, jump)
    await plan(database)
    left = await wait(database)
    assert left is not None
    assert delay - SOON < left <= delay


@JUMPS
async def test_a_retry_that_was_put_off_before_the_jump_stays_as_it_is(database: Database, jump: timedelta) -> None:
    await put_off(database, timedelta(days=30), is_doubtful=False)
    before = await wait(database)
    await move(database, -jump)
    moved = await wait(database)
    await plan(database)
    left = await wait(database)
    assert before is not None
    if moved is None:
        assert left is None
    else:
        assert left is not None
        assert moved - SOON < left <= moved


@JUMPS
async def test_the_claims_of_a_dead_actuator_are_taken_over_after_one_heartbeat(
    database: Database, jump: timedelta
) -> None:
    (key,) = await decide(database, intent(A))
    async with database.transaction() as connection:
        await heartbeats.beat(connection, SCOPE, "dead", HEARTBEAT)
    await claim(database, "dead")
    await move(database, jump)
    await plan(database)
    async with database.transaction() as connection:
        ends = (await connection.execute(select(actuators.c.expires_at))).scalar_one()
        assert ends <= datetime.now(UTC) + HEARTBEAT + SOON
        await connection.execute(update(actuators).values(expires_at=NOON))
        assert await heartbeats.end_claims_of_gone(connection, SCOPE, timedelta(0)) == 1
    assert [each.key for each in await claim(database, "two")] == [key]


@JUMPS
async def test_a_claim_of_nobody_who_is_known_ends_after_its_time(database: Database, jump: timedelta) -> None:
    await decide(database, intent(A))
    await claim(database, "dead")
    await move(database, jump)
    await plan(database)
    left = await wait(database)
    assert left is not None
    assert left <= LEASE


@JUMPS
async def test_a_write_that_the_log_does_not_show_is_looked_at(database: Database, jump: timedelta) -> None:
    written = intent(A, state="written", is_folded=True, result_version=7, due_at=datetime.now(UTC) + jump)
    await decide(database, written)
    await plan(database)
    async with database.transaction() as connection:
        found = await outcomes.take_unseen(connection, SCOPE, limit=10, after=timedelta(0), most=SOON)
    assert [each.key for each in found] == [written["key"]]


async def test_nothing_of_other_applications_is_planned_anew_nor_counts(database: Database) -> None:
    far = datetime.now(UTC) + timedelta(days=30)
    key = await put_off(database, timedelta(days=1), is_doubtful=False)
    async with database.transaction() as connection:
        other = intent(B, key=key, scope=2, state="claimed", owner="other", due_at=far, expires_at=far)
        await connection.execute(insert(intents), [other])
        await connection.execute(insert(actuators).values(scope=2, owner="other", expires_at=far))
    before = await wait(database)
    await plan(database)
    async with database.reading() as connection:
        ends = [select(table.c.expires_at).where(table.c.scope == 2) for table in (intents, actuators)]
        assert [(await connection.execute(each)).scalar_one() for each in ends] == [far, far]
    left = await wait(database)
    assert before is not None
    assert left is not None
    assert before - SOON < left <= before


@JUMPS
async def test_calls_are_recorded_again_if_a_clock_that_was_ahead_says_when_they_were(
    database: Database, jump: timedelta
) -> None:
    scope, every = await scope_of(database), timedelta(days=1)
    async with database.transaction() as connection:
        assert await is_time_to_record(connection, scope, every)
        await note_recorded(connection, scope)
        assert not await is_time_to_record(connection, scope, every)
        await connection.execute(update(scopes).values(calls_recorded_at=datetime.now(UTC) + jump))
        assert await is_time_to_record(connection, scope, every)
