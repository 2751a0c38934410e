"""Calling users' functions: async ones in the loop, others in threads, each with its time limit."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from datetime import timedelta
from typing import Any, Final

from levelog.faults import HandlerFault
from levelog.threads import THREADS, LeftBehind, Threads

COROUTINES: Final = 128
"""Async functions that run at one time."""
CANCELLATION_TIME: Final = timedelta(seconds=2)
"""How long a cancelled function may take to clean up."""


class FunctionCaller:
    """Calls functions, at most one at a time for each key; `subject` is what messages call a key.

    A function that outlasts its time limit and cannot be ended goes on; its key is lost until it returns.
    """

    def __init__(self, *, threads: int = THREADS, subject: str = "this object") -> None:
        self._threads = Threads(threads)
        self._subject = subject
        self._room = asyncio.Semaphore(COROUTINES)
        self._lost: dict[Hashable, asyncio.Task[Any] | None] = {}
        """Keys whose function was left behind and goes on; its task if it is async."""

    def is_lost(self, key: Hashable) -> bool:
        """Tell whether the key's function still runs although its time is over."""
        return key in self._lost

    async def run(self, key: Hashable, function: Callable[[], Any], limit: timedelta, *, is_async: bool) -> Any:
        """Call a function and return what it does; one that is not async runs in a thread, and may return a coroutine.

        Raises what it raises, and HandlerFault if it takes longer than its time limit or exits.
        """
        if self.is_lost(key):
            raise HandlerFault("still runs although its time is over; it will be called again when it has returned")
        if is_async:
            return await self._in_loop(key, function, limit)
        result = await self._in_thread(key, function, limit)
        if isinstance(result, Coroutine):  # a plain function that returns what an async one made
            return await self._in_loop(key, lambda: result, limit)
        return result

    async def close(self) -> None:
        """End the idle threads, and cancel what was left behind in the loop."""
        self._threads.close()
        tasks = {task for task in self._lost.values() if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCELLATION_TIME.total_seconds())

    async def _in_thread(self, key: Hashable, function: Callable[[], Any], limit: timedelta) -> Any:
        try:
            return await self._threads.run(_without_exit(function), limit, on_late=lambda: self._find(key))
        except LeftBehind:
            self._lost[key] = None
            raise HandlerFault(
                f"did not return within {_shown(limit)}; a thread cannot be ended, so it goes on, and the function "
                f"will not be called again for {self._subject} before it has returned"
            ) from None

    async def _in_loop(self, key: Hashable, function: Callable[[], Any], limit: timedelta) -> Any:
        async with self._room:
            task = asyncio.create_task(_awaited(function), name=f"function for {key}")
            try:
                await asyncio.wait({task}, timeout=limit.total_seconds())
            finally:
                is_late = not task.done()
                if is_late:
                    task.cancel()
                    await asyncio.wait({task}, timeout=CANCELLATION_TIME.total_seconds())
        if not task.done():
            self._lost[key] = task
            task.add_done_callback(lambda _: self._find(key))
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

    def _find(self, key: Hashable) -> None:
        task = self._lost.pop(key, None)
        if task is not None and not task.cancelled():
            task.exception()


async def _awaited(function: Callable[[], Any]) -> Any:
    try:
        result = function()
        return await result if isinstance(result, Awaitable) else result
    except SystemExit as error:  # asyncio would end the process with it
        raise HandlerFault(f"called sys.exit({error.code})") from error


def _without_exit(function: Callable[[], Any]) -> Callable[[], Any]:
    def call() -> Any:
        try:
            return function()
        except SystemExit as error:
            raise HandlerFault(f"called sys.exit({error.code})") from error

    return call


def _shown(limit: timedelta) -> str:
    return f"{limit.total_seconds():g} s"
