"""What follows from an attempt at a call, whoever asked for it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from levelog import GiveUp, Retry
from levelog.calls.executor import AT_ONCE, Attempt, Executor, Failure
from levelog.calls.faults import StillRuns
from levelog.calls.limits import CallLimits
from levelog.effects import MOST_DELAY, EffectHandler
from levelog.handlers.injection import Lender
from rigs.waiting import until
from rigs.webs import NOON

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def greet(request: str) -> None:
    pass


def attempt(limits: CallLimits, number: int = 1, since: datetime = NOON) -> Attempt:
    return Attempt("shop", EffectHandler(greet, Lender("webs"), limits), "shop", number, since, MINUTE)


@pytest.fixture
def executor() -> Executor:
    return Executor(subject="this object", clock=lambda: NOON + MINUTE, schedule=lambda number, most: most / number)


BUSY = ValueError("busy")


class OnItsOwn(Retry):
    """Is counted by who raises it."""

    is_limited = False


@pytest.mark.parametrize(
    ("error", "limits", "number", "delay"),
    [
        (BUSY, CallLimits(), 2, MINUTE / 2),
        (BUSY, CallLimits(backoff=SECOND), 2, SECOND),
        (BUSY, CallLimits(retries=2), 2, MINUTE / 2),
        (BUSY, CallLimits(retries=2), 3, None),
        (BUSY, CallLimits(retries=0), 1, None),
        (BUSY, CallLimits(backoff=MINUTE, give_up_after=3 * MINUTE), 1, MINUTE),
        (BUSY, CallLimits(backoff=MINUTE, give_up_after=2 * MINUTE), 1, None),
        (Retry(delay=SECOND), CallLimits(backoff=MINUTE), 1, SECOND),
        (Retry(), CallLimits(backoff=SECOND), 1, SECOND),
        (Retry(), CallLimits(), 2, MINUTE / 2),
        (Retry(delay=-SECOND), CallLimits(), AT_ONCE - 1, timedelta(0)),
        (Retry(delay=-SECOND), CallLimits(), AT_ONCE, SECOND),
        (Retry(delay=timedelta.max), CallLimits(), 1, MOST_DELAY),
        (Retry(delay=SECOND), CallLimits(retries=1), 2, None),
        (OnItsOwn(), CallLimits(retries=0), 1, MINUTE),
        (StillRuns("still runs"), CallLimits(retries=0, backoff=SECOND), 1, MINUTE),
        (StillRuns("still runs"), CallLimits(), 60, 5 * SECOND),
        (GiveUp("never"), CallLimits(), 1, None),
    ],
)
async def test_an_error_is_followed_by_another_attempt_or_by_none(
    executor: Executor, error: Exception, limits: CallLimits, number: int, delay: timedelta | None
) -> None:
    async def call() -> None:
        raise error

    failure = await executor.make(attempt(limits, number), call)
    assert failure is not None
    assert (None if failure.is_final else failure.delay) == delay
    assert failure.is_final or failure.is_counted != isinstance(error, StillRuns)
    assert failure.error.startswith("effect greet: ")


@pytest.mark.parametrize(
    ("number", "since", "given"),
    [
        (1, NOON - MINUTE, 10 * SECOND),
        (2, NOON - MINUTE, None),
        (2, NOON + SECOND, SECOND),
        (2, NOON + MINUTE, 10 * SECOND),
    ],
)
async def test_an_attempt_has_no_more_time_than_is_left_of_the_call_but_the_first_one_is_made(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, number: int, since: datetime, given: timedelta | None
) -> None:
    async def run(_key: Hashable, _function: object, limit: timedelta, *, is_async: bool) -> timedelta:
        assert not is_async
        return limit

    monkeypatch.setattr(executor.functions, "run", run)
    one = attempt(CallLimits(give_up_after=MINUTE), number, since)
    made = await executor.make(one, lambda: executor.run(one, list))
    if given is None:
        assert isinstance(made, Failure)
        assert (made.is_final, made.error) == (True, "effect greet: it is given up 0:01:00 after it was decided")
    else:
        assert made == given
    await executor.close()


async def test_an_attempt_whose_time_is_over_once_it_has_a_place_is_given_up() -> None:
    now = NOON
    executor = Executor(subject="this object", clock=lambda: now, schedule=lambda _, most: most)
    release, limits = threading.Event(), CallLimits(max_concurrency=1, give_up_after=MINUTE)
    first = attempt(limits)
    second = replace(first, key="second", number=2)
    begun = threading.Event()

    def hold() -> bool:
        begun.set()
        return release.wait()

    calls = [asyncio.ensure_future(executor.make(first, lambda: executor.run(first, hold)))]
    await until(begun.is_set, "the first call")
    calls.append(asyncio.ensure_future(executor.make(second, lambda: executor.run(second, list))))
    await asyncio.sleep(0)  # it waits for the place
    now = NOON + MINUTE
    release.set()
    made, given_up = await asyncio.gather(*calls)
    assert made is True
    assert isinstance(given_up, Failure)
    assert given_up.is_final
    await executor.close()


async def test_a_function_that_outlasts_its_time_keeps_its_place_until_it_returns(executor: Executor) -> None:
    release, calls = threading.Event(), list[str]()
    first = attempt(CallLimits(timeout=SECOND / 100, max_concurrency=1))

    def make(key: str, function: Callable[[], Any]) -> Awaitable[Any]:
        one = replace(first, key=key)
        return executor.make(one, lambda: executor.run(one, function))

    slow = await make("slow", release.wait)
    assert "a thread cannot be ended" in slow.error
    assert "still runs" in (await make("slow", release.wait)).error
    other = asyncio.ensure_future(make("other", lambda: calls.append("other")))
    for number in range(3):  # which begin later, and need no place
        await executor.run(replace(attempt(CallLimits()), key=number), list)
    assert not calls
    assert executor.outlasting(first.of) == {"slow"}
    release.set()
    assert await other is None
    assert (calls, executor.outlasting(first.of)) == (["other"], set())
    await executor.close()


@pytest.mark.parametrize("within", [timedelta(0), MINUTE])
async def test_calls_end_although_who_drains_them_is_cancelled(executor: Executor, within: timedelta) -> None:
    async def goes_on() -> None:
        await asyncio.Event().wait()

    call = executor.tasks.begin(goes_on(), "a call for ever")
    draining = asyncio.create_task(executor.tasks.drain(within))
    await asyncio.sleep(0)
    draining.cancel()
    await asyncio.wait([call, draining], timeout=10)
    assert call.cancelled()
