import asyncio
from datetime import timedelta

from levelog_actuator.ledger import Ledger
from levelog_actuator.results import Ended
from levelog_store.actuate import claims
from rigs.acting import QUICK, Acting
from rigs.intents import intent


async def store_two(acting: Acting) -> None:
    """Store a result that no database takes together with one that is as usual."""
    keys = await acting.decide(intent("pods/default/a"), intent("pods/default/b", verb="call"))
    async with acting.database.transaction() as connection:
        claimed = await claims.claim(connection, acting.scope, "me", limit=2, lease=timedelta(minutes=1))

    async def told() -> None: ...

    ledger = Ledger(
        acting.database,
        acting.scope,
        "me",
        QUICK,
        is_busy=lambda: False,
        on_taken=lambda _taken: None,
        on_hastened=told,
    )
    for each in claimed:
        ledger.record(Ended(intent=each, outcome="written", version=2**70 if each.key == keys[0] else 7))
    storing = asyncio.create_task(ledger.run())
    async with asyncio.timeout(10):
        await ledger.until_stored()
    storing.cancel()
    rows = await acting.rows()
    assert [(rows[key]["state"], rows[key]["outcome"]) for key in keys] == [
        ("failed", "failed"),
        ("written", "written"),
    ]
    assert "does not take a value" in rows[keys[0]]["error"]


async def test_a_result_that_the_database_does_not_take_fails_alone(on_sandbox: Acting) -> None:
    await store_two(on_sandbox)


async def test_the_same_on_postgresql(shared: Acting) -> None:
    await store_two(shared)
