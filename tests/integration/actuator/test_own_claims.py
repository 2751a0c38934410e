"""Claims that wait for their turn: looked up together, however many they are."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import update

from levelog_actuator.outbox import Outbox
from levelog_actuator.ownclaims import RECHECK_SECONDS, OwnClaims
from levelog_store.actuate import claims, outcomes
from levelog_store.actuate.elapsed import elapsed
from levelog_store.connect.database import Database
from levelog_store.tables import intents
from rigs.acting import QUICK, Acting, writes
from rigs.faults import Hold
from rigs.intents import decide, intent, states
from rigs.leasing import SCOPE
from rigs.waiting import until


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
