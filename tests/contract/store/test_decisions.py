from collections.abc import Sequence
from datetime import timedelta

from levelog_store.actuate import claims
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Decided, PendingWake
from levelog_store.decide.decisionwrites import write_valid
from levelog_store.rows import LevelRow
from rigs.intents import decide, intent, intents_by_key
from rigs.leasing import SCOPE

VIEW, PARENT = "webs/pods", "webs.example.com/default/shop"


def outcome(*withdrawn: str, continued: Sequence[str] = ()) -> Decided:
    wake = PendingWake(view=VIEW, parent=PARENT, partition=0, cause=1, generation=1, due_at=None)
    level = LevelRow(view=VIEW, parent=PARENT, partition=0, parent_uid="u", status="in_sync")
    return Decided(wake=wake, level=level, withdrawn=list(withdrawn), continued=list(continued))


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
        assert (await write_valid(connection, SCOPE, [outcome(*keys)], "code")).valid == []
    async with database.transaction() as connection:
        assert len((await write_valid(connection, SCOPE, [outcome()], "code")).valid) == 1
    assert [(await intents_by_key(database))[key]["state"] for key in keys] == ["claimed", "superseded"]


async def test_invariant_8_a_decision_is_given_up_if_a_call_that_goes_on_in_it_is_claimed_meanwhile(
    database: Database,
) -> None:
    """Its receipt would tell of a round that has passed, and what it did would count for nothing."""
    keys = await decide(database, intent("webs.notify/default/shop", verb="call"))
    async with database.transaction() as connection:
        assert len((await write_valid(connection, SCOPE, [outcome(continued=keys)], "code")).valid) == 1
    assert [(await intents_by_key(database))[key]["state"] for key in keys] == ["pending"]
    async with database.transaction() as connection:
        await claims.claim(connection, SCOPE, "actuator", limit=10, lease=timedelta(minutes=1))
    async with database.transaction() as connection:
        assert (await write_valid(connection, SCOPE, [outcome(continued=keys)], "code")).valid == []
