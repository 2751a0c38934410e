import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import reduce
from typing import Any, Final, cast

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_actuator.ledger import Ledger, StoredResults
from levelog_actuator.outbox import Outbox
from levelog_actuator.relay import BATCH, Relay
from levelog_actuator.results import Ended, Later
from levelog_base.errors import Unavailable
from levelog_base.wire.canonical import canonical
from levelog_base.wire.projection import Applied
from levelog_base.wire.records import CallNoted, PatchNoted
from levelog_log.publisher import BatchPublisher
from levelog_store.actuate import claims
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.connect.database import Database
from levelog_store.fold import levelwrites
from levelog_store.tables import wakeups
from rigs.acting import QUICK, Acting
from rigs.assembled import cancel
from rigs.intents import NOON, claimed_intent, intent
from rigs.waiting import until


def ledger_of(
    acting: Acting,
    database: Database,
    *,
    on_stored: Callable[[StoredResults], None] = lambda _stored: None,
    told: asyncio.Event | None = None,
) -> Ledger:
    async def tell() -> None:
        if told is not None:
            told.set()

    outbox = Outbox(database, acting.scope, "me", QUICK)
    return Ledger(outbox, under_way=(), on_stored=on_stored, on_hastened=tell)


async def claimed(acting: Acting) -> list[ClaimedIntent]:
    async with acting.database.transaction() as connection:
        return await claims.claim(connection, acting.scope, "me", limit=100, lease=timedelta(minutes=1))


async def store(acting: Acting, ledger: Ledger) -> None:
    """Claim intents, and store that they were written."""
    for each in await claimed(acting):
        ledger.record(Ended(intent=each, outcome="written"))
    await stored(ledger)


async def stored(ledger: Ledger) -> None:
    storing = asyncio.create_task(ledger.run())
    async with asyncio.timeout(60):
        await ledger.is_empty.wait()
    storing.cancel()


def returned(result: Any, name: str = "") -> dict[str, Any]:
    return {"call": CallNoted(name=name, request="a\0b", result=result)}


ODD: Final[Mapping[str, dict[str, Any]]] = {
    "": {"version": 7},
    "uid": {"uid": "a\0\ud800"},
    "error": {"error": "a\0\ud800"},
    "applied": {"applied": Applied(fields={"a\0": None})},
    "result": returned({"a\0": "\0"}),
    "no version": {"version": 2**63},
    "no version of a patch": {"patches": (PatchNoted(verb="patch", outcome="written", target_version=2**63),)},
    "no name": returned("", name="a\0"),
    "no text": returned("\ud800"),
    "number": returned(2**70),
    "no tree": returned(reduce(lambda inner, _: [inner], range(5000), cast("Any", []))),
}
"""What an API server answers, or a function returns."""


async def test_a_result_that_log_or_database_does_not_take_fails_its_intent_alone(on_either: Acting) -> None:
    names = {(verb, name): f"pods/default/{verb}-{n}" for verb in ("patch", "call") for n, name in enumerate(ODD)}
    await on_either.decide(*(intent(target, verb=verb) for (verb, _), target in names.items()))
    outbox = Outbox(on_either.database, on_either.scope, "me", QUICK)
    relay = Relay(outbox, BatchPublisher(on_either.stream), on_either.stream.writer("actuator"))
    ledger = ledger_of(on_either, on_either.database, on_stored=lambda found: relay.submit_stored(found.receipts))
    intents = {each.target: each for each in await claimed(on_either)}
    for (verb, name), target in names.items():
        result = Ended(intent=intents[target], outcome="written", **ODD[name])
        if verb == "call":
            ledger.record(result)
        else:
            relay.submit(result, NOON)
    await stored(ledger)
    await relay.flush()
    await relay.keep()
    logged = {str(each.target): each for each in await on_either.receipts()}
    rows = {each["target"]: each for each in (await on_either.rows()).values()}
    for (verb, name), target in names.items():
        state = "failed" if name.startswith("no ") else "written"
        assert (rows[target]["state"], logged[target].state) == (state, state), (verb, name)
        assert rows[target]["error"].startswith("its result cannot be recorded: " if state == "failed" else "")


class AwayOnce(Database):
    """A database of which one transaction fails, after so many and after something else has happened."""

    def __init__(self, database: Database, meanwhile: Callable[[], None] = lambda: None, *, after: int = 0) -> None:
        self.__dict__.update(vars(database))
        self._meanwhile = meanwhile
        self._left = after

    @asynccontextmanager
    async def transaction(self, *, durable: bool = True) -> AsyncGenerator[AsyncConnection]:
        """As Database.transaction."""
        self._left -= 1
        if self._left == -1:
            self._meanwhile()
            raise Unavailable("it is away")
        async with super().transaction(durable=durable) as connection:
            yield connection


async def test_what_is_forgotten_while_the_database_goes_away_is_not_stored_when_it_is_back(on_sandbox: Acting) -> None:
    keys = await on_sandbox.decide(intent("pods/default/a", verb="call"), intent("pods/default/b", verb="call"))
    ledger = ledger_of(on_sandbox, AwayOnce(on_sandbox.database, lambda: ledger.forget(keys[0])))
    await store(on_sandbox, ledger)
    rows = await on_sandbox.rows()
    assert [rows[key]["state"] for key in keys] == ["claimed", "written"]


async def test_who_may_withdraw_a_call_is_woken_once_the_database_is_back(on_sandbox: Acting) -> None:
    row = intent("pods/default/a", verb="call")
    (key,) = await on_sandbox.decide(row)
    wakeup = {name: row[name] for name in ("view", "parent", "partition", "cause")} | {"scope": on_sandbox.scope.number}
    wakeup |= {"causes": "", "generation": 1, "due_at": NOON + timedelta(days=36_500)}
    async with on_sandbox.database.transaction() as connection:
        await connection.execute(insert(wakeups), [wakeup])
    told = asyncio.Event()
    ledger = ledger_of(on_sandbox, AwayOnce(on_sandbox.database, after=1), told=told)
    (call,) = await claimed(on_sandbox)
    ledger.record(Later(intent=call, delay=timedelta(hours=1), error="503", is_doubtful=False))
    storing = asyncio.create_task(ledger.run())
    async with asyncio.timeout(60):
        await told.wait()
    await cancel(storing)
    async with on_sandbox.database.reading() as connection:
        assert await levelwrites.read_waiting(connection, on_sandbox.scope, [key]) == []


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


async def test_of_very_many_receipts_each_is_relayed_once_before_anybody_folds_it(on_either: Acting) -> None:
    rows = [intent(f"pods/default/{number}", verb="call", state="written") for number in range(BATCH + 1)]
    for row in rows:
        done = Ended(intent=claimed_intent(row), outcome="written")
        row["receipt"] = canonical(done.receipt(on_either.scope.application, NOON, "me"))
    keys = await on_either.decide(*rows)
    outbox = Outbox(on_either.database, on_either.scope, "me", QUICK)
    relay = Relay(outbox, BatchPublisher(on_either.stream), on_either.stream.writer("actuator"))
    relaying = asyncio.create_task(relay.run())

    async def are_noted() -> bool:
        return all(row["is_relayed"] for row in (await on_either.rows()).values())

    await until(are_noted, "notes that all receipts are in the log")
    await cancel(relaying)
    assert sorted(each.key for each in await on_either.receipts()) == sorted(keys)
