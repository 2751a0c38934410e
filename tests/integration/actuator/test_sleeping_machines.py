"""A machine that sleeps: claims and heartbeats expire meanwhile, although the event loop's time stands still."""

import time
from typing import Any, Final

import msgspec
import pytest

from levelog_actuator import Actuator
from levelog_store.actuate import claims
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.actuate.elapsed import elapsed
from levelog_store.decide.decisions import Sendable
from rigs.acting import QUICK, Acting, writes
from rigs.faults import Hold
from rigs.intents import states
from rigs.waiting import until

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
