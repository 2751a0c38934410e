"""Calling reconcile functions: where they run, how they are ended, and what is said of what they give."""

import asyncio
import contextlib
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from levelog import Intent, Level, Operator, delete
from levelog.calls.caller import MOST_LOST, FunctionCaller
from levelog.calls.faults import HandlerFault, StillRuns
from levelog_processors.decide.functions import Caller
from rigs.kinds import Web
from rigs.waiting import until

SHORT = timedelta(milliseconds=50)
LONG = timedelta(seconds=60)


INTENT = delete(Web, "a", namespace="default")
TOO_MANY = [INTENT] * 10_001


def view(web: Web) -> Level[int]:
    return Level(1, 0)


@pytest_asyncio.fixture
async def caller() -> AsyncIterator[Caller]:
    made = Caller(threads=2)
    try:
        yield made
    finally:
        await made.close()


async def call(caller: Caller, function: Callable[..., Any], *, limit: timedelta = LONG, name: str = "a") -> Any:
    op = Operator("webs")
    op.view(view)
    op.reconcile(view, timeout=limit)(function)
    handler = op.reconcilers["view"]
    return await caller.call(("webs/view", f"webs.example.com/default/{name}"), handler, {"web": None})


async def is_back(caller: Caller, *names: str) -> None:
    async def all_are() -> bool:
        return not any(caller.still_runs(("webs/view", f"webs.example.com/default/{name}")) for name in names)

    await until(all_are, "the functions to return")


def yields(web: Web) -> Iterator[Intent]:
    assert threading.current_thread() is not threading.main_thread()
    yield INTENT


def returns_a_list(web: Web) -> list[Intent]:
    assert threading.current_thread() is not threading.main_thread()
    return [INTENT]


async def awaits(web: Web) -> list[Intent]:
    assert threading.current_thread() is threading.main_thread()
    await asyncio.sleep(0)
    return [INTENT]


async def yields_later(web: Web) -> AsyncIterator[Intent]:
    await asyncio.sleep(0)
    yield INTENT


async def returns_a_generator(web: Web) -> Iterator[Intent]:
    return iter([INTENT])


def hands_on(web: Web) -> Any:
    return awaits(web)


@pytest.mark.parametrize(
    "function", [yields, returns_a_list, awaits, yields_later, returns_a_generator, hands_on], ids=lambda f: f.__name__
)
async def test_every_shape_of_function_gives_its_intents(caller: Caller, function: Any) -> None:
    assert await call(caller, function) == [INTENT]


def nothing(web: Web) -> None:
    pass


async def test_a_function_may_have_nothing_to_ask_for(caller: Caller) -> None:
    assert await call(caller, nothing) == []


def one_intent(web: Web) -> Any:
    return INTENT


def a_manifest(web: Web) -> Any:
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}


def returned_manifest(web: Web) -> Any:
    return {"apiVersion": "v1"}


def a_number(web: Web) -> Any:
    return 3


def a_none(web: Web) -> Any:
    yield None


def goes_on(web: Web) -> Any:
    yield from TOO_MANY
    raise MemoryError


async def goes_on_async(web: Web) -> Any:
    for each in TOO_MANY:
        yield each
    raise MemoryError


async def too_many(web: Web) -> Any:
    return TOO_MANY


def leaves(web: Web) -> Any:
    raise SystemExit(3)


class Leaving(SystemExit):
    """As programs have their own."""


async def leaves_the_loop(web: Web) -> Any:
    raise Leaving(3)


async def cancels_itself(web: Web) -> Any:
    raise asyncio.CancelledError


async def test_a_function_may_return_one_intent(caller: Caller) -> None:
    assert [each.name for each in await call(caller, one_intent)] == ["a"]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (a_manifest, "yielded a mapping, which is not an intent: wrap a manifest in apply(…)"),
        (returned_manifest, "returned a mapping: yield intents, and wrap a manifest in apply(…)"),
        (a_number, "returned an int: yield intents, or return a list of them"),
        (a_none, "yielded None, which is not an intent: "),
        (goes_on, "asked for more than 10,000 writes in one round"),
        (goes_on_async, "asked for more than 10,000 writes in one round"),
        (too_many, "asked for more than 10,000 writes in one round"),
        (leaves, "called sys.exit(3)"),
        (leaves_the_loop, "called sys.exit(3)"),
        (cancels_itself, "cancelled itself"),
    ],
)
async def test_what_is_not_intents_is_refused_with_what_to_write(caller: Caller, function: Any, said: str) -> None:
    with pytest.raises(HandlerFault, match=re.escape(said)):
        await call(caller, function)


async def test_an_async_function_is_cancelled_at_its_time_limit(caller: Caller) -> None:
    cancelled = asyncio.Event()

    async def hangs(web: Web) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(HandlerFault, match=r"took longer than 0\.05 s and was cancelled"):
        await call(caller, hangs, limit=SHORT)
    assert cancelled.is_set()
    assert await call(caller, awaits) == [INTENT]


async def test_an_async_function_that_swallows_its_cancellation_is_left_behind(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelog.calls.caller.CANCELLATION_TIME", SHORT)
    release = asyncio.Event()

    async def stubborn(web: Web) -> None:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    with pytest.raises(HandlerFault, match="goes on although it was cancelled"):
        await call(caller, stubborn, limit=SHORT)
    with pytest.raises(HandlerFault, match="still runs although its time is over"):
        await call(caller, awaits)
    assert await call(caller, awaits, name="b") == [INTENT]
    release.set()
    await is_back(caller, "a")
    assert await call(caller, awaits) == [INTENT]


async def test_a_thread_that_hangs_is_replaced_and_its_level_waits_for_it(caller: Caller) -> None:
    release = threading.Event()

    def hangs(web: Web) -> None:
        release.wait()

    try:
        for name in "abc":  # one more than there are threads
            with pytest.raises(HandlerFault, match="a thread cannot be ended"):
                await call(caller, hangs, limit=SHORT, name=name)
        with pytest.raises(HandlerFault, match="still runs although its time is over"):
            await call(caller, returns_a_list)
        assert await call(caller, returns_a_list, name="d") == [INTENT]
    finally:
        release.set()
    await is_back(caller, "a")
    assert await call(caller, returns_a_list) == [INTENT]


async def test_so_many_hanging_threads_are_enough(caller: Caller) -> None:
    release = threading.Event()

    def hangs(web: Web) -> None:
        release.wait()

    most = 2 * MOST_LOST
    try:
        hanging = [call(caller, hangs, limit=SHORT, name=f"h{number}") for number in range(most)]
        assert all(isinstance(each, HandlerFault) for each in await asyncio.gather(*hanging, return_exceptions=True))
        with pytest.raises(HandlerFault, match=f"was not called: {most} threads hang"):
            await call(caller, returns_a_list, name="other")
        assert await call(caller, awaits, name="other") == [INTENT]
    finally:
        release.set()
    await is_back(caller, *(f"h{number}" for number in range(most)))
    assert await call(caller, returns_a_list, name="other") == [INTENT]


async def test_a_function_that_raises_a_time_out_of_its_own_has_failed_and_is_not_lost(caller: Caller) -> None:
    def times_out(web: Web) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await call(caller, times_out)
    assert await call(caller, returns_a_list) == [INTENT]


@pytest.mark.parametrize("is_impatient", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_function_whose_caller_was_cancelled_is_not_called_again_before_it_has_returned(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, is_async: bool, is_impatient: bool
) -> None:
    monkeypatch.setattr("levelog.calls.caller.CANCELLATION_TIME", SHORT)
    begun, release, released = threading.Event(), threading.Event(), asyncio.Event()

    def waits(web: Web) -> None:
        begun.set()
        release.wait()

    async def swallows(web: Web) -> None:
        begun.set()
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    task = asyncio.create_task(call(caller, swallows if is_async else waits))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    while is_impatient and not task.done():
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait({task})
    try:
        with pytest.raises(StillRuns):
            await call(caller, returns_a_list)
    finally:
        release.set()
        released.set()
    await is_back(caller, "a")
    assert await call(caller, returns_a_list) == [INTENT]


async def test_functions_run_side_by_side(caller: Caller) -> None:
    both = threading.Barrier(2, timeout=30)

    def meets(web: Web) -> None:
        both.wait()

    assert list(await asyncio.gather(*(call(caller, meets, name=name) for name in "ab"))) == [[], []]


async def hangs() -> None:
    await asyncio.Event().wait()


async def swallows() -> str:
    with contextlib.suppress(asyncio.CancelledError):
        await hangs()
    return "swallowed"


async def fails_late() -> None:
    try:
        await hangs()
    finally:
        raise KeyError("while it cleans up")


async def ends_itself() -> None:
    raise asyncio.CancelledError


def cancel_this_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def cancels_its_task() -> None:
    cancel_this_task()
    await hangs()


async def exits() -> None:
    raise SystemExit(3)


async def gives_up_waiting() -> None:
    raise TimeoutError("of its own")


@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        (hangs, HandlerFault, "took longer than 0.01 s and was cancelled"),
        (swallows, HandlerFault, "took longer than 0.01 s and was cancelled"),
        (fails_late, HandlerFault, "took longer than 0.01 s and was cancelled"),
        (ends_itself, HandlerFault, "cancelled itself"),
        (cancels_its_task, HandlerFault, "cancelled itself"),
        (exits, HandlerFault, "called sys.exit"),
        (gives_up_waiting, TimeoutError, "of its own"),
    ],
)
async def test_what_a_function_does_in_the_task_that_asks_for_it_is_told_to_that_task(
    function: Any, kind: type[Exception], said: str
) -> None:
    caller = FunctionCaller()
    limit = timedelta(seconds=0.01 if kind is HandlerFault else 10)
    with pytest.raises(kind, match=said):
        await run_here(caller, function, limit)
    await is_as_before(caller)


async def run_here(caller: FunctionCaller, function: Any, limit: timedelta = timedelta(seconds=10)) -> Any:
    return await caller.run("key", function, limit, is_async=True)


async def is_as_before(caller: FunctionCaller) -> None:
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    assert await run_here(caller, lambda: asyncio.sleep(0, "returned")) == "returned"


async def test_whoever_ends_the_task_that_asks_ends_the_function_with_it() -> None:
    begun = asyncio.Event()

    async def waits() -> None:
        begun.set()
        await hangs()

    task = asyncio.create_task(run_here(FunctionCaller(), waits, timedelta(minutes=1)))
    await begun.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
