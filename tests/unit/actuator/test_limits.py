"""How long an actuator waits, and for how many: delays, room for claims, groups that rest, turns."""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from levelog_actuator import ActuatorSettings
from levelog_actuator.daemoncalls import Pauses
from levelog_actuator.limits import Limits, Room, Turns
from levelog_base.errors import ConfigurationError
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


PATIENT = ActuatorSettings(first_delay=timedelta(seconds=1), most_delay=timedelta(seconds=60))


def test_delays_double_up_to_the_longest() -> None:
    delays = [PATIENT.delay(attempt, jitter=lambda: 0.0).total_seconds() for attempt in range(1, 10)]
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_at_most_half_of_a_delay_is_left_to_chance(attempt: int, chance: float) -> None:
    whole = PATIENT.delay(attempt, jitter=lambda: 0.0)
    assert whole / 2 <= PATIENT.delay(attempt, jitter=lambda: chance) <= whole


def test_a_server_that_names_a_time_is_not_asked_before() -> None:
    assert PATIENT.delay(1, retry_after=timedelta(seconds=90)) == timedelta(seconds=90)
    assert PATIENT.delay(5, retry_after=timedelta(seconds=1), jitter=lambda: 0.0) == timedelta(seconds=16)


def test_a_claim_shorter_than_its_requests_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a claim of 10 s is too short for requests that may take 6 s"):
        ActuatorSettings(lease=timedelta(seconds=10), request=timedelta(seconds=6))


def test_all_attempts_together_take_two_to_three_minutes() -> None:
    settings = ActuatorSettings()
    waits = [settings.delay(attempt, jitter=lambda: 0.5) for attempt in range(1, settings.attempts)]
    assert timedelta(minutes=2) < sum(waits, timedelta()) < timedelta(minutes=3)


async def test_who_goes_on_to_wait_although_it_has_to_end_holds_up_nothing() -> None:
    ending = asyncio.Event()
    ending.set()

    async def deaf() -> None:
        while True:
            await Pauses().pause(ending, timedelta(minutes=1))

    task = asyncio.create_task(deaf())
    for _ in range(3):
        await asyncio.sleep(0)  # returns only if the other one lets it
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
