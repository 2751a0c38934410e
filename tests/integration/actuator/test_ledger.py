import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_actuator.ledger import Ledger, StoredResults
from levelog_actuator.results import Ended
from levelog_base.errors import Unavailable
from levelog_store.actuate import claims
from levelog_store.connect.database import Database
from rigs.acting import QUICK, Acting
from rigs.intents import intent


def ledger_of(
    acting: Acting, database: Database, *, on_stored: Callable[[StoredResults], None] = lambda _stored: None
) -> Ledger:
    async def told() -> None: ...

    return Ledger(database, acting.scope, "me", QUICK, is_busy=lambda: False, on_stored=on_stored, on_hastened=told)


async def store(acting: Acting, ledger: Ledger, versions: Mapping[str, int] = {}) -> None:
    """Claim two intents, and store that they were written, at the versions that are given by key."""
    async with acting.database.transaction() as connection:
        claimed = await claims.claim(connection, acting.scope, "me", limit=2, lease=timedelta(minutes=1))
    for each in claimed:
        ledger.record(Ended(intent=each, outcome="written", version=versions.get(each.key, 0)))
    storing = asyncio.create_task(ledger.run())
    async with asyncio.timeout(10):
        await ledger.is_empty.wait()
    storing.cancel()


async def test_a_result_that_the_database_does_not_take_fails_alone(on_either: Acting) -> None:
    keys = await on_either.decide(intent("pods/default/a"), intent("pods/default/b", verb="call"))
    await store(on_either, ledger_of(on_either, on_either.database), dict(zip(keys, (2**70, 7), strict=True)))
    rows = await on_either.rows()
    assert [(rows[key]["state"], rows[key]["outcome"]) for key in keys] == [
        ("failed", "failed"),
        ("written", "written"),
    ]
    assert "does not take a value" in rows[keys[0]]["error"]


class AwayOnce(Database):
    """A database whose first transaction fails, after something else has happened."""

    def __init__(self, database: Database, meanwhile: Callable[[], None]) -> None:
        self.__dict__.update(vars(database))
        self._meanwhile: Callable[[], None] | None = meanwhile

    @asynccontextmanager
    async def transaction(self, *, durable: bool = True) -> AsyncGenerator[AsyncConnection]:
        """As Database.transaction."""
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
            raise Unavailable("it is away")
        async with super().transaction(durable=durable) as connection:
            yield connection


async def test_what_is_forgotten_while_the_database_goes_away_is_not_stored_when_it_is_back(on_sandbox: Acting) -> None:
    keys = await on_sandbox.decide(intent("pods/default/a", verb="call"), intent("pods/default/b", verb="call"))
    ledger = ledger_of(on_sandbox, AwayOnce(on_sandbox.database, lambda: ledger.forget(keys[0])))
    await store(on_sandbox, ledger)
    rows = await on_sandbox.rows()
    assert [rows[key]["state"] for key in keys] == ["claimed", "written"]


async def test_what_a_call_did_is_in_the_database_before_it_goes_on_to_the_log(on_sandbox: Acting) -> None:
    """The target of a write tells what became of it; of a call nothing tells but its receipt."""
    (call,) = await on_sandbox.decide(intent("pods/default/b", verb="call"))
    went_on, before = list[str](), list[str]()

    def take(stored: StoredResults) -> None:
        went_on.extend(receipt.key for receipt in stored.receipts)

    away = AwayOnce(on_sandbox.database, lambda: before.extend(went_on))
    await store(on_sandbox, ledger_of(on_sandbox, away, on_stored=take))
    assert (before, went_on) == ([], [call])
    row = (await on_sandbox.rows())[call]
    assert (row["state"], bool(row["receipt"])) == ("written", True)
