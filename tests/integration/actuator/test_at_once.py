"""An actuator in the process that decides: what it takes as it is decided, and that it carries it out."""

import asyncio
import math
from typing import Any

import pytest
from msgspec.structs import replace

from levelog import Operator
from levelog_actuator import Actuator
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.actuate.elapsed import elapsed
from levelog_store.decide.decisions import Sendable
from levelog_store.dialects import upsert
from levelog_store.tables import levels
from rigs.acting import QUICK, Acting, writes
from rigs.faults import Hold
from rigs.intents import calls, claim_decided, claimed_intent, level_of
from rigs.waiting import until


def sendable(row: dict[str, Any]) -> Sendable:
    return Sendable(**{name: row[name] for name in Sendable.__struct_fields__})


async def claimed_for(acting: Acting, actuator: Actuator, row: dict[str, Any]) -> ClaimedIntent:
    """Decide an intent and claim it in the same transaction, as a processor does, with the level that it is of.

    What is given back and has no level is superseded.
    """
    row |= {"scope": acting.scope.number}
    async with acting.database.transaction() as connection:
        await upsert(connection, levels, [level_of(row)], update=())
        (key,) = await claim_decided(connection, [row], actuator.owner, actuator.lease, acting.scope)
    assert key == row["key"]
    return claimed_intent(row)


async def is_chosen(actuator: Actuator, row: dict[str, Any]) -> bool:
    return bool(actuator.choose([sendable(row)]))


async def test_what_is_claimed_for_it_is_carried_out_once_and_without_a_notification(on_sandbox: Acting) -> None:
    seen = await on_sandbox.make("configmaps", "a")
    row = on_sandbox.intent("patch", seen, body={"data": {"k": "1"}})
    async with on_sandbox.running() as actuator:
        await until(lambda: is_chosen(actuator, row), "an actuator that takes what is decided")
        claimed = await claimed_for(on_sandbox, actuator, row)
        actuator.begin([claimed], elapsed())
        (receipt,) = await on_sandbox.receipts_of([row["key"]])
    assert (receipt.outcome, receipt.attempts) == ("written", 1)
    assert len(on_sandbox.sent(name="a")) == 1


@pytest.mark.parametrize("is_committed", [True, False])
async def test_of_claims_that_may_not_be_committed_those_are_carried_out_that_are(
    on_sandbox: Acting, is_committed: bool
) -> None:
    first, second = await on_sandbox.make("configmaps", "a"), await on_sandbox.make("configmaps", "b")
    row = on_sandbox.intent("patch", first, body={"data": {"k": "1"}})
    other = on_sandbox.intent("patch", second, body={"data": {"k": "1"}})
    async with on_sandbox.running() as actuator:
        await until(lambda: is_chosen(actuator, row), "an actuator that takes what is decided")
        claimed = await claimed_for(on_sandbox, actuator, row)
        if not is_committed:
            claimed = replace(claimed, key="of a transaction that was rolled back")
        actuator.begin([claimed], -math.inf)
        await on_sandbox.carried_out(other)
        if is_committed:
            await on_sandbox.receipts_of([row["key"]])
    assert len(on_sandbox.sent(name="a")) == is_committed


async def test_it_takes_what_it_can_send_at_once_and_no_calls(on_sandbox: Acting) -> None:
    wanted = [on_sandbox.intent("apply", target=f"configmaps/default/{name}") for name in "abc"]
    call = replace(sendable(wanted[0]), verb="call")
    actuator = on_sandbox.actuator()
    assert actuator.choose([sendable(row) for row in wanted]) == []
    async with on_sandbox.running(replace(QUICK, requests=2)) as actuator:
        await until(lambda: is_chosen(actuator, wanted[0]), "an actuator that takes what is decided")
        assert actuator.choose([call]) == []
        assert actuator.choose([sendable(row) for row in wanted]) == [row["key"] for row in wanted[:2]]
    assert actuator.choose([sendable(row) for row in wanted]) == []


async def test_it_takes_a_write_for_a_quiet_namespace_beside_all_that_another_has_claimed(on_sandbox: Acting) -> None:
    held = on_sandbox.proxy.add(Hold(stage="request"), writes, times=None)
    noisy = [on_sandbox.intent("apply", target=f"configmaps/noisy/{number}") for number in range(QUICK.claimed)]
    quiet, more = (on_sandbox.intent("apply", target=f"configmaps/{name}/more") for name in ("quiet", "noisy"))
    async with on_sandbox.running() as actuator:
        await until(lambda: is_chosen(actuator, more), "an actuator that takes what is decided")
        await on_sandbox.decide(*noisy)
        await until(
            lambda: is_chosen(actuator, more), "an actuator that has claimed enough", accept=lambda found: not found
        )
        assert actuator.choose([sendable(more), sendable(quiet)]) == [quiet["key"]]
        actuator.begin([await claimed_for(on_sandbox, actuator, quiet)], elapsed())
        assert actuator.choose([sendable(quiet)]) == []
        held.release()


async def test_calls_that_last_leave_room_for_writes(on_sandbox: Acting) -> None:
    op, begun, over = Operator("webs"), list[str](), asyncio.Event()

    @op.effect
    async def slow(request: str) -> None:
        begun.append(request)
        await over.wait()

    wanted = on_sandbox.intent("apply", target="configmaps/default/a")
    async with on_sandbox.running(replace(QUICK, requests=2), op) as actuator:
        await on_sandbox.decide(*calls("slow", 3))
        await until(lambda: len(begun) == 3, "three calls that go on")
        assert await is_chosen(actuator, wanted)
        over.set()


async def test_it_takes_nothing_while_the_api_cannot_be_reached(on_sandbox: Acting) -> None:
    seen = await on_sandbox.make("configmaps", "a")
    row = on_sandbox.intent("patch", seen, body={"data": {"k": "1"}})
    async with on_sandbox.running() as actuator:
        await until(lambda: is_chosen(actuator, row), "an actuator that takes what is decided")
        on_sandbox.door.refuse()
        on_sandbox.door.cut()
        keys = await on_sandbox.decide(row)
        await until(
            lambda: is_chosen(actuator, row), "an actuator that takes nothing more", accept=lambda found: not found
        )
        await on_sandbox.door.accept()
        await on_sandbox.receipts_of(keys)
        assert await is_chosen(actuator, row)
