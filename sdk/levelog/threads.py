"""Threads for functions that are not async. A thread cannot be ended: one that does not come back is replaced."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, Final

from levelog.faults import HandlerFault

THREADS: Final = 32
"""Calls of functions that are not async at one time."""
MOST_LOST: Final = 4
"""Threads that may hang at one time, in times of the size, before calls are refused: each holds memory for good."""


class LeftBehind(Exception):
    """A function took longer than its time limit; its thread goes on."""


class Threads:
    """Runs functions in at most `size` threads at a time, besides those that were left behind.

    The threads are daemons, so that one that hangs does not keep the process from ending.
    """

    def __init__(self, size: int = THREADS) -> None:
        self._size = size
        self._room = asyncio.Semaphore(size)
        self._idle: list[_Worker] = []
        self.lost = 0
        """Threads that were left behind and have not returned yet."""

    async def run(self, function: Callable[[], Any], limit: timedelta, *, on_late: Callable[[], None]) -> Any:
        """Call the function in a thread, with the context of the caller, and return or raise what it does.

        Raises LeftBehind when it takes longer than `limit`, counted from its beginning: the thread goes on, and
        `on_late` is called when it returns. Raises HandlerFault if too many threads were left behind.
        """
        async with self._room:
            if self.lost >= self._size * MOST_LOST:
                raise HandlerFault(f"was not called: {self.lost} threads hang in functions that did not return in time")
            worker = self._idle.pop() if self._idle else _Worker()
            outcome = worker.submit(contextvars.copy_context(), function)
            try:
                await asyncio.wait({outcome}, timeout=limit.total_seconds())
            except asyncio.CancelledError:
                worker.retire()
                raise
            if not outcome.done():
                worker.retire()
                self._leave_behind(outcome, on_late)
                raise LeftBehind
            self._idle.append(worker)
        value, error = outcome.result()
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """End the threads that wait for work."""
        while self._idle:
            self._idle.pop().retire()

    def _leave_behind(self, outcome: "asyncio.Future[Any]", on_late: Callable[[], None]) -> None:
        self.lost += 1

        def returned(_: object) -> None:
            self.lost -= 1
            on_late()

        outcome.add_done_callback(returned)


class _Worker:
    """One thread and the calls that it is given, one at a time."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._work, name="levelog function", daemon=True).start()

    def submit(self, context: contextvars.Context, function: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Call the function; the future is given the pair of what it returned and what it raised."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()

        def finish(value: Any, error: BaseException | None) -> None:
            if not outcome.done():
                outcome.set_result((value, error))

        def call() -> None:
            try:
                value, error = context.run(function), None
            except BaseException as raised:  # noqa: BLE001 - all of it belongs to who asked for the call
                value, error = None, raised
            try:
                loop.call_soon_threadsafe(finish, value, error)
            except RuntimeError:  # the loop was closed while the function hung; nobody waits any more
                return

        self._calls.put(call)
        return outcome

    def retire(self) -> None:
        """End the thread, as soon as it has returned from what it does."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
