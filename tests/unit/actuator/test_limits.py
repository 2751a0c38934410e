"""Room for claims, and the groups that rest; turns are tested with a server."""

import asyncio

import pytest
from msgspec.structs import replace

from levelog_actuator.limits import Limits, Room, Turns
from levelog_actuator.outbox import ActuatorSettings
from levelog_store.actuate.claims import ClaimedIntent
from rigs.orders import order

SETTINGS = ActuatorSettings(requests=4, group_requests=3, claimed=20)
FEW = 8
"""Twice the requests."""


def limits(now: float = 0.0) -> tuple[Limits, list[float]]:
    clock = [now]
    return Limits(SETTINGS, lambda: clock[0]), clock


def intent(api_version: str) -> ClaimedIntent:
    return order(api_version=api_version).intent


WEB, OLD_WEB, POD, JOB = map(intent, ("example.com/v1", "example.com/v1beta1", "v1", "batch/v1"))


def test_one_group_alone_claims_many_at_once_and_then_none_until_few_are_left() -> None:
    limit, _ = limits()
    assert limit.room == Room(limit=20, without=())
    for _ in range(20):
        limit.begin(WEB)
    assert limit.room.without == ("example.com/v1",)
    for _ in range(20 - FEW):
        limit.end(WEB)
    assert limit.room == Room(limit=20 - FEW, without=())


def test_a_group_that_has_enough_leaves_room_for_the_others_in_all_its_versions() -> None:
    limit, _ = limits()
    for _ in range(FEW):
        limit.begin(WEB)
    limit.begin(OLD_WEB)
    assert limit.room == Room(limit=20, without=("example.com/v1", "example.com/v1beta1"))
    for _ in range(20):
        limit.begin(POD)
    assert limit.room.limit == 40 - 29
    for _ in range(11):
        limit.begin(JOB)
    assert limit.room.limit == 0


def test_groups_that_have_enough_together_claim_no_more_until_few_are_left() -> None:
    limit, _ = limits()
    for _ in range(FEW):
        limit.begin(WEB)
        limit.begin(POD)
    assert limit.room == Room(limit=0, without=())
    for _ in range(FEW):
        limit.end(POD)
    assert limit.room == Room(limit=20 - FEW, without=())


async def test_requests_of_a_namespace_do_not_wait_for_all_that_another_one_waits_for() -> None:
    limit, began, end = Limits(SETTINGS), list[str](), asyncio.Event()

    async def send(namespace: str) -> None:
        async with limit.turn(replace(WEB, parent=f"webs.example.com/{namespace}/shop")):
            began.append(namespace)
            await end.wait()

    tasks = [asyncio.create_task(send(namespace)) for namespace in [*["noisy"] * 5, "quiet", "_", "quiet"]]
    await asyncio.sleep(0)
    assert began == ["noisy"] * SETTINGS.group_requests
    end.set()
    await asyncio.wait(tasks)
    assert began[SETTINGS.group_requests :] == ["noisy", "quiet", "_", "noisy", "quiet"]


@pytest.mark.parametrize("is_waiting", [False, True])
async def test_a_turn_for_who_was_cancelled_while_waiting_or_as_it_was_given_goes_to_the_next(
    *, is_waiting: bool
) -> None:
    turns, began = Turns(1), list[str]()

    async def have(name: str) -> None:
        async with turns.turn(name):
            began.append(name)

    async with turns.turn("first"):
        tasks = [asyncio.create_task(have(name)) for name in ("cancelled", "next")]
        await asyncio.sleep(0)
        if is_waiting:
            tasks[0].cancel()
            await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.wait(tasks, timeout=60)
    assert began == ["next"]
