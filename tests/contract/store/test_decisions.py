from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy import select

from levelog_store.actuate import claims
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Decided, PendingWake
from levelog_store.decide.decisionwrites import consume_wakes, write_decisions
from levelog_store.fold.changes import Wake
from levelog_store.fold.levelwrites import write_wakes
from levelog_store.rows import LevelRow
from levelog_store.tables import wakeups
from rigs.intents import decide, intent, intents_by_key
from rigs.leasing import SCOPE
from rigs.webs import NOON

VIEW, PARENT = "webs/pods", "webs.example.com/default/shop"


def outcome(*withdrawn: str) -> Decided:
    wake = PendingWake(view=VIEW, parent=PARENT, partition=0, cause=1, generation=1, due_at=None)
    level = LevelRow(view=VIEW, parent=PARENT, partition=0, parent_uid="u", status="in_sync")
    return Decided(wake=wake, level=level, withdrawn=list(withdrawn))


async def test_invariant_8_a_decision_is_given_up_if_an_intent_that_it_withdraws_is_claimed_meanwhile(
    database: Database,
) -> None:
    first, second = intent("pods/default/a"), intent("pods/default/b")
    keys = await decide(database, first)
    async with database.transaction() as connection:
        claimed = await claims.claim(connection, SCOPE, "actuator", limit=10, lease=timedelta(minutes=1))
    assert [one.key for one in claimed] == keys
    keys += await decide(database, second)
    async with database.transaction() as connection:
        assert (await write_decisions(connection, SCOPE, [outcome(*keys)], "code")).held == []
    async with database.transaction() as connection:
        assert len((await write_decisions(connection, SCOPE, [outcome()], "code")).held) == 1
    assert [(await intents_by_key(database))[key]["state"] for key in keys] == ["claimed", "superseded"]


async def asked(database: Database) -> list[tuple[int, bool]]:
    """Generation of each wakeup, and whether it is due now."""
    async with database.reading() as connection:
        rows = await connection.execute(select(wakeups.c.generation, wakeups.c.due_at))
        return [(row.generation, row.due_at is None) for row in rows]


@pytest.mark.parametrize("due_at", [None, NOON])
async def test_invariant_5_a_decision_answers_no_wakeup_but_the_one_that_it_saw(
    database: Database, due_at: datetime | None
) -> None:
    async with database.transaction() as connection:
        await write_wakes(connection, SCOPE, {(VIEW, PARENT): Wake(0, (7,))}, generation=2)
    for generation, left in ((1, [(2, True)]), (2, [(2, False)] if due_at else [])):
        seen = outcome()
        decided = replace(seen, wake=replace(seen.wake, generation=generation), due_at=due_at)
        async with database.transaction() as connection:
            await consume_wakes(connection, SCOPE, [decided])
        assert await asked(database) == left


async def test_invariant_5_a_time_to_look_again_does_not_put_off_a_wakeup_that_came_meanwhile(
    database: Database,
) -> None:
    async with database.transaction() as connection:
        await write_wakes(connection, SCOPE, {(VIEW, PARENT): Wake(0, (7,))}, generation=2)
    decided = replace(outcome(), due_at=NOON)
    async with database.transaction() as connection:
        await consume_wakes(connection, SCOPE, [decided], without_rows=[(VIEW, PARENT)])
    assert await asked(database) == [(2, True)]
