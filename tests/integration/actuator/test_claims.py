"""Claims that wait for their turn, are looked up together, and expire while a machine sleeps."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_actuator import Actuator
from levelog_actuator.claiming import ClaimLoop
from levelog_actuator.outbox import Outbox
from levelog_actuator.ownclaims import RECHECK_SECONDS, OwnClaims
from levelog_log.notifications import Listener
from levelog_store.actuate import claims, outcomes
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.actuate.elapsed import elapsed
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Sendable
from levelog_store.tables import intents
from rigs.acting import QUICK, WITHOUT_RESYNC, Acting, writes
from rigs.assembled import cancel
from rigs.faults import Hold
from rigs.intents import decide, intent, states
from rigs.leasing import SCOPE
from rigs.waiting import until


class AskedOnce(Database):
    """A database in which something happens after what was asked first was read, before the answer is there."""

    def __init__(self, database: Database, meanwhile: Callable[[], None]) -> None:
        self.__dict__.update(vars(database))
        self._meanwhile: Callable[[], None] | None = meanwhile

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[AsyncConnection]:
        """As Database.reading."""
        async with super().reading() as connection:
            yield connection
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()


async def test_what_is_given_back_while_the_database_is_asked_is_claimed_when_it_is_due(on_sandbox: Acting) -> None:
    """The database was asked too early to say so, and the claim that follows on the notification comes too early."""
    claims, is_due = 0, asyncio.Event()

    async def claim() -> tuple[bool, float]:
        nonlocal claims
        claims += 1
        if claims == 3:
            is_due.set()
        return True, 0.0

    async def ready() -> None:
        """Claim at once."""

    def give_back() -> None:
        loop.expect(timedelta(milliseconds=50))
        loop.listener.notify()

    database = AskedOnce(on_sandbox.database, give_back)
    loop = ClaimLoop(Outbox(database, on_sandbox.scope, "me", WITHOUT_RESYNC), Listener(), ready, claim)
    running = asyncio.create_task(loop.run())
    async with asyncio.timeout(30):
        await is_due.wait()
    await cancel(running)


async def test_a_look_that_began_before_a_claim_says_nothing_of_it(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_looked, may_go_on = asyncio.Event(), asyncio.Event()
    still_claimed = claims.still_claimed

    async def slowly(*given: Any) -> set[str]:
        found = await still_claimed(*given)
        has_looked.set()
        await may_go_on.wait()
        return found

    monkeypatch.setattr(claims, "still_claimed", slowly)
    clock = asyncio.get_running_loop().time
    async with await Database.open(database_url) as database, asyncio.timeout(30):
        again, _ = await decide(database, intent("pods/default/a"), intent("pods/default/b"))
        own = OwnClaims(Outbox(database, SCOPE, "one", QUICK), lambda: None, clock)

        async def claimed() -> dict[str, claims.ClaimedIntent]:
            async with database.transaction() as connection:
                found = await claims.claim(connection, SCOPE, "one", limit=10, lease=timedelta(minutes=1))
            return {each.key: each for each in found}

        first = await claimed()
        async with database.transaction() as connection:
            back = outcomes.Postponement(
                key=again, claim=first[again].claim, delay=timedelta(0), error="", attempts=1, is_doubtful=False
            )
            await outcomes.postpone(connection, SCOPE, "one", [back])
        for each in first.values():
            own.begin(each, clock() - 2 * RECHECK_SECONDS)
        [other] = [each for key, each in first.items() if key != again]
        looking = asyncio.create_task(own.is_mine(other))
        await has_looked.wait()
        own.end(first[again])
        began, second = clock(), await claimed()
        own.begin(second[again], began)
        may_go_on.set()
        assert await looking
        assert await own.is_mine(second[again])


async def test_invariant_7_what_another_actuator_claimed_while_it_waited_for_its_turn_is_not_sent(
    on_sandbox: Acting,
) -> None:
    waited = 0.0
    on_sandbox.clock = lambda: elapsed() + waited
    seen = [await on_sandbox.make("configmaps", f"a-{number}") for number in range(3)]
    held = on_sandbox.proxy.add(Hold(stage="answer"), writes)
    async with on_sandbox.running(replace(QUICK, requests=1)):
        keys = await on_sandbox.decide(*(on_sandbox.intent("patch", each, body={"data": {"k": "1"}}) for each in seen))
        await held.until_applied()
        await until(lambda: states(on_sandbox.database, keys), "claims", accept=lambda found: found == ["claimed"] * 3)
        async with on_sandbox.database.transaction() as connection:
            await connection.execute(update(intents).where(intents.c.key == keys[1]).values(owner="another"))
        waited = 2 * RECHECK_SECONDS
        held.release()
        await on_sandbox.receipts_of([keys[0], keys[2]])
    assert sorted(request.name for request in on_sandbox.sent()) == ["a-0", "a-2"]


ONE_AT_A_TIME: Final = msgspec.structs.replace(QUICK, requests=1)
TOO_LONG: Final = (QUICK.lease - QUICK.request).total_seconds()
"""What is left of a claim is not enough for a request."""


class Sleeping:
    """A clock that goes on while the machine sleeps, as the loop's does not."""

    def __init__(self) -> None:
        self.slept = 0.0

    def __call__(self) -> float:
        return elapsed() + self.slept


def test_the_clock_of_claims_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {time.CLOCK_MONOTONIC: 10.0, time.CLOCK_BOOTTIME: 10.0}
    monkeypatch.setattr(time, "clock_gettime", times.__getitem__)
    before = elapsed()
    times[time.CLOCK_BOOTTIME] += 3600
    assert elapsed() - before == 3600


async def test_claims_that_ended_while_the_machine_slept_are_given_back_and_nothing_is_sent_under_them(
    on_sandbox: Acting,
) -> None:
    on_sandbox.clock = clock = Sleeping()
    seen = [await on_sandbox.make("configmaps", f"a-{number}") for number in range(3)]
    held = on_sandbox.proxy.add(Hold(stage="answer"), writes)
    async with on_sandbox.running(ONE_AT_A_TIME):
        wanted = [on_sandbox.intent("patch", each, body={"data": {"k": "1"}}) for each in seen]
        keys = await on_sandbox.decide(*wanted)
        await held.until_applied()

        async def are_claimed() -> bool:
            return await states(on_sandbox.database, keys) == ["claimed"] * 3

        await until(are_claimed, "claims that wait for their turn")
        clock.slept += TOO_LONG
        held.release()
        receipts = await on_sandbox.receipts_of(keys)
    assert on_sandbox.postponed == 2
    assert {(each.outcome, each.attempts) for each in receipts} == {("written", 1)}


async def test_a_claim_counts_from_before_the_transaction_that_made_it(
    on_sandbox: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_sandbox.clock = clock = Sleeping()
    claim = claims.claim

    async def slow_once(*arguments: Any, **options: Any) -> list[ClaimedIntent]:
        found = await claim(*arguments, **options)
        if found and not clock.slept:
            clock.slept += TOO_LONG
        return found

    monkeypatch.setattr(claims, "claim", slow_once)
    seen = await on_sandbox.make("configmaps", "a")
    async with on_sandbox.running():
        receipt = await on_sandbox.does("patch", seen, body={"data": {"k": "1"}})
    assert (receipt.outcome, on_sandbox.postponed) == ("written", 1)
    assert len(on_sandbox.sent()) == 1


async def test_an_actuator_that_slept_is_not_there_until_it_has_said_so_again(shared: Acting) -> None:
    shared.clock = clock = Sleeping()
    row = shared.intent("apply", target=f"configmaps/{shared.namespace}/a")

    def is_chosen(actuator: Actuator) -> bool:
        return bool(actuator.choose([Sendable(**{name: row[name] for name in Sendable.__struct_fields__})]))

    async with shared.running() as actuator:

        async def takes_more() -> bool:
            return is_chosen(actuator)

        await until(takes_more, "an actuator that takes what is decided")
        clock.slept += QUICK.heartbeat_timeout.total_seconds()
        assert not is_chosen(actuator)
        assert "heartbeat" in actuator.trouble()
        await until(takes_more, "an actuator that is there again")
