"""Start-up and clean-up hooks, in a simulation: the same lifecycle as in a process."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from levelog import Level, LiveIndex, Operator, Struct
from levelog.testing import Simulation
from levelog_base.errors import HookFailed
from rigs.kinds import Web, web
from rigs.simulated import run_with, simulated

SHORT = timedelta(milliseconds=50)


class Settings(Struct):
    greeting: str = "hello"


def operator(name: str = "shop") -> Operator:
    op = Operator(name, settings=Settings())

    @op.index
    def names(web: Web) -> Iterator[tuple[str, str]]:
        yield "all", web.metadata.name

    @op.view
    def view(web: Web) -> Level[int]:
        return Level(1, 1)

    return op


def test_hooks_of_all_operators_run_in_the_order_of_definition_and_are_given_what_they_ask_for() -> None:
    op, other, told = operator(), operator("other"), list[str]()

    @op.on.startup
    async def first(settings: Settings, logger: logging.Logger) -> None:
        told.append(f"first {settings.greeting} {logger.name}")

    @op.on.startup
    def second() -> None:
        told.append(f"second {threading.current_thread().name}")

    @op.on.cleanup
    def last() -> None:
        told.append("last")

    @other.on.startup(timeout=timedelta(seconds=30))
    async def third() -> None:
        told.append("third")

    with Simulation(op, other) as simulation:
        run_with(simulation, web("a"))
        assert told == ["first hello levelog.operator.shop.first", "second levelog function", "third"]
    assert told[-1] == "last"


def test_a_hook_that_raises_ends_it_before_anything_is_folded_and_cleanup_runs_all_the_same() -> None:
    op, told = operator(), list[str]()

    @op.on.startup
    async def connect() -> None:
        raise ConnectionError("no route")

    @op.on.startup
    async def never() -> None:
        told.append("never")

    @op.on.cleanup
    async def close() -> None:
        told.append("closed")

    with pytest.raises(HookFailed, match="startup hook connect of operator shop failed: ConnectionError: no route"):
        Simulation(op).__enter__()
    assert told == ["closed"]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_hook_that_hangs_ends_it_too(*, is_async: bool) -> None:
    op, release = operator(), threading.Event()

    async def hangs() -> None:
        await asyncio.Event().wait()

    def hangs_in_a_thread() -> None:
        release.wait()

    op.on.startup(timeout=SHORT)(hangs if is_async else hangs_in_a_thread)
    try:
        with pytest.raises(HookFailed, match=r"startup hook hangs.* (took longer than|did not return within) 0\.05 s"):
            Simulation(op).__enter__()
    finally:
        release.set()


def test_a_cleanup_hook_that_raises_or_hangs_does_not_keep_the_others_from_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    op, told = operator(), list[str]()

    @op.on.cleanup
    def raises() -> None:
        raise KeyError("x")

    @op.on.cleanup(timeout=SHORT)
    async def hangs() -> None:
        await asyncio.Event().wait()

    @op.on.cleanup
    def last() -> None:
        told.append("last")

    with Simulation(op):
        pass
    assert told == ["last"]
    assert "cleanup hook raises failed for shop: KeyError: 'x' (test_hooks.py line" in caplog.text
    assert "cleanup hook hangs failed for shop: took longer than 0.05 s and was cancelled" in caplog.text


def test_a_task_that_a_startup_hook_leaves_running_waits_for_an_index_and_is_ended_before_cleanup() -> None:
    op, told = operator(), list[str]()
    seen = threading.Event()

    @op.on.startup
    async def watch(names: LiveIndex[str, str]) -> None:
        async def follow() -> None:
            try:
                await names.until("all", lambda found: "a" in found)
                seen.set()
                await asyncio.Event().wait()
            finally:
                told.append("task ended")

        told.append("started")
        tasks.append(asyncio.create_task(follow()))

    tasks: list[asyncio.Task[None]] = []

    @op.on.cleanup
    def last() -> None:
        told.append("cleaned up")

    with simulated(op, web("a")):
        assert seen.wait(60)
    assert told == ["started", "task ended", "cleaned up"]
    assert tasks[0].cancelled()


def test_a_task_that_fails_is_told(caplog: pytest.LogCaptureFixture) -> None:
    op, failed = operator(), threading.Event()

    @op.on.startup
    async def watch() -> None:
        async def fails() -> None:
            try:
                raise KeyError("x")
            finally:
                failed.set()

        tasks.append(asyncio.create_task(fails()))

    tasks: list[asyncio.Task[None]] = []
    with Simulation(op):
        assert failed.wait(60)
    assert "a task of the startup hook watch of operator shop failed: KeyError: 'x'" in caplog.text
