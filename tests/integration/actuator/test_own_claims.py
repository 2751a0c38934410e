"""Claims that wait for their turn: looked up together, however many they are."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from levelog_actuator.outbox import Outbox
from levelog_actuator.ownclaims import RECHECK_SECONDS, OwnClaims
from levelog_store.actuate import claims
from levelog_store.connect.database import Database
from rigs.acting import QUICK
from rigs.intents import decide, intent
from rigs.leasing import SCOPE


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
            back = claims.Postponement(
                key=again, claim=first[again].claim, delay=timedelta(0), error="", attempts=1, is_doubtful=False
            )
            await claims.postpone(connection, SCOPE, "one", [back])
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
