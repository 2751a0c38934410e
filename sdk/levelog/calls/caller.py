"""Calls users' functions with a time limit: async ones in the event loop, others in threads."""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, Final

from levelog.calls.faults import HandlerFault, StillRuns, containing

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

    async def run(
        self,
        function: Callable[[], Any],
        limit: timedelta | None = None,
        *,
        on_left: Callable[[], None] = lambda: None,
        on_late: Callable[[], None] = lambda: None,
    ) -> Any:
        """Call the function in a thread, with the context of the caller, and return or raise what it does.

        Raises LeftBehind when it takes longer than `limit`, counted from its beginning: the thread goes on, as it does
        when the caller is cancelled. Then `on_left` is called, and `on_late` when it returns. Raises HandlerFault if
        too many threads were left behind.
        """
        async with self._room:
            if self.lost >= self._size * MOST_LOST:
                raise HandlerFault(f"was not called: {self.lost} threads hang in functions that did not return in time")
            worker = self._idle.pop() if self._idle else _Worker()
            outcome = worker.submit(contextvars.copy_context(), function)
            try:
                await asyncio.wait({outcome}, timeout=limit.total_seconds() if limit is not None else None)
            finally:
                if outcome.done():
                    self._idle.append(worker)
                else:
                    worker.retire()
                    on_left()
                    self._leave_behind(outcome, on_late)
            if not outcome.done():
                raise LeftBehind
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
        """End the thread as soon as its function has returned."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


COROUTINES: Final = 128
"""Async functions that run at one time."""
CANCELLATION_TIME: Final = timedelta(seconds=2)
"""How long a cancelled function may take to clean up."""


class FunctionCaller:
    """Calls functions, at most one at a time for each key; `subject` is what messages call a key.

    A function that outlasts its time limit and cannot be ended goes on; nothing is called for its key meanwhile.
    """

    def __init__(
        self,
        *,
        threads: int = THREADS,
        subject: str = "this object",
        on_late_return: Callable[[Hashable], None] = lambda _: None,
    ) -> None:
        """`on_late_return` hears of a key whose function has returned although its time was over."""
        self._threads = Threads(threads)
        self._subject = subject
        self._room = asyncio.Semaphore(COROUTINES)
        self._outlasting: dict[Hashable, asyncio.Task[Any] | None] = {}
        """Keys whose function was left behind and goes on; its task if it is async."""
        self._on_late_return = on_late_return

    def still_runs(self, key: Hashable) -> bool:
        """Tell whether the key's function still runs although its time is over."""
        return key in self._outlasting

    async def run(self, key: Hashable, function: Callable[[], Any], limit: timedelta, *, is_async: bool) -> Any:
        """Call a function and return its result; a plain one runs in a thread, and may return a coroutine.

        Raises what the function raises; HandlerFault if it exceeds its time limit or exits; and StillRuns, without a
        call, while the previous call is running.
        """
        self._refuse_running(key)
        if is_async:
            return await self._in_loop(key, function, limit)
        result = await self._in_thread(key, function, limit)
        if isinstance(result, Coroutine):  # a plain function that returns what an async one made
            return await self._in_loop(key, lambda: result, limit)
        return result

    async def close(self) -> None:
        """End the idle threads, and cancel functions that were left behind in the loop."""
        self._threads.close()
        tasks = {task for task in self._outlasting.values() if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCELLATION_TIME.total_seconds())

    async def _in_thread(self, key: Hashable, function: Callable[[], Any], limit: timedelta) -> Any:
        def leave() -> None:
            self._outlasting[key] = None

        def call() -> Any:
            with containing():
                return function()

        try:
            return await self._threads.run(call, limit, on_left=leave, on_late=lambda: self._returned_late(key))
        except LeftBehind:
            raise HandlerFault(
                f"did not return within {_shown(limit)}; a thread cannot be ended, so it goes on, and the function "
                f"will not be called again for {self._subject} before it has returned"
            ) from None

    async def _in_loop(self, key: Hashable, function: Callable[[], Any], limit: timedelta) -> Any:
        async with self._room:
            task, is_late = await self.run_until(key, function, lambda task: _ended(task, limit))
        if not task.done():
            raise HandlerFault(
                f"took longer than {_shown(limit)} and goes on although it was cancelled; it will not be called again "
                f"for {self._subject} before it has returned"
            )
        if is_late:
            _ = task.cancelled() or task.exception()  # looked at, so that asyncio does not report it as lost
            raise HandlerFault(f"took longer than {_shown(limit)} and was cancelled")
        if task.cancelled():
            raise HandlerFault("cancelled itself")
        return task.result()

    async def run_until(
        self, key: Hashable, function: Callable[[], Any], wait: Callable[[asyncio.Task[Any]], Awaitable[None]]
    ) -> tuple[asyncio.Task[Any], bool]:
        """Call an async function, and cancel it unless it has returned when `wait` has.

        Returns its task, and whether it was cancelled; one that is not done goes on. Raises StillRuns.
        """
        self._refuse_running(key)
        task = asyncio.create_task(awaited(function), name=f"function for {key}")
        try:
            await wait(task)
        finally:
            is_late = not task.done()
            try:
                if is_late:
                    task.cancel()
                    await _ended(task, CANCELLATION_TIME)
            finally:  # the caller may be cancelled here once more
                if not task.done():
                    self._outlasting[key] = task
                    task.add_done_callback(lambda _: self._returned_late(key))
        return task, is_late

    def _refuse_running(self, key: Hashable) -> None:
        if self.still_runs(key):
            raise StillRuns("still runs although its time is over; it will be called again when it has returned")

    def _returned_late(self, key: Hashable) -> None:
        task = self._outlasting.pop(key, None)
        if task is not None and not task.cancelled():
            task.exception()
        self._on_late_return(key)


async def _ended(task: asyncio.Task[Any], limit: timedelta) -> None:
    """Wait for a task, at most for so long; `asyncio.wait` costs twice."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def end(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    task.add_done_callback(end)
    timer = loop.call_later(limit.total_seconds(), end)
    try:
        await waiter
    finally:
        timer.cancel()
        task.remove_done_callback(end)


async def awaited(function: Callable[[], Any]) -> Any:
    """Call a function, to be run as a task; raises nothing that would end the process."""
    with containing(asyncio.CancelledError):
        result = function()
        return await result if isinstance(result, Awaitable) else result


def _shown(limit: timedelta) -> str:
    return f"{limit.total_seconds():g} s"
