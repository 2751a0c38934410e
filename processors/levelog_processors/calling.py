"""Calling reconcile functions: async ones in the loop, others in threads, each with its time limit."""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from levelog.handlers import ReconcileHandler
from levelog.injection import about
from levelog.intents import Intent
from levelog_processors.faults import HandlerFault
from levelog_processors.threads import THREADS, LeftBehind, Threads
from levelog_store.rows import ViewParent

COROUTINES: Final = 128
"""Async functions that run at one time."""
CANCELLATION_TIME: Final = timedelta(seconds=2)
"""How long a cancelled function may take to clean up."""


class Caller:
    """Calls reconcile functions for levels, at most one at a time for each level."""

    def __init__(self, *, threads: int = THREADS) -> None:
        self._threads = Threads(threads)
        self._room = asyncio.Semaphore(COROUTINES)
        self._lost: dict[ViewParent, asyncio.Task[Any] | None] = {}
        """Levels whose function was left behind and goes on; its task if it is async."""

    def is_lost(self, level: ViewParent) -> bool:
        """Tell whether the level's function still runs although its time is over."""
        return level in self._lost

    async def call(self, level: ViewParent, handler: ReconcileHandler, arguments: Mapping[str, Any]) -> list[Intent]:
        """Call a function and return its intents.

        Raises what it raises, and HandlerFault if it takes longer than its time limit, or gives anything but intents.
        """
        if self.is_lost(level):
            raise HandlerFault("still runs although its time is over; it will be called again when it has returned")
        about(object=level[1], view=level[0])
        function = handler.function
        if handler.is_async:
            result = await self._in_loop(level, lambda: function(**arguments), handler.timeout)
        else:
            result = await self._in_thread(level, lambda: _in_full(function(**arguments)), handler.timeout)
            if _is_async(result):  # a plain function that returns what an async one made
                result = await self._in_loop(level, lambda: result, handler.timeout)
        return _intents(result)

    async def close(self) -> None:
        """End the idle threads, and cancel what was left behind in the loop."""
        self._threads.close()
        tasks = {task for task in self._lost.values() if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCELLATION_TIME.total_seconds())

    async def _in_thread(self, level: ViewParent, function: Callable[[], Any], limit: timedelta) -> Any:
        try:
            return await self._threads.run(_without_exit(function), limit, on_late=lambda: self._find(level))
        except LeftBehind:
            self._lost[level] = None
            raise HandlerFault(
                f"did not return within {_shown(limit)}; a thread cannot be ended, so it goes on, and the function "
                "will not be called again for this object before it has returned"
            ) from None

    async def _in_loop(self, level: ViewParent, function: Callable[[], Any], limit: timedelta) -> Any:
        async with self._room:
            task = asyncio.create_task(_awaited(function), name=f"reconcile {level[1]}")
            try:
                await asyncio.wait({task}, timeout=limit.total_seconds())
            finally:
                is_late = not task.done()
                if is_late:
                    task.cancel()
                    await asyncio.wait({task}, timeout=CANCELLATION_TIME.total_seconds())
        if not task.done():
            self._lost[level] = task
            task.add_done_callback(lambda _: self._find(level))
            raise HandlerFault(
                f"took longer than {_shown(limit)} and goes on although it was cancelled; it will not be called again "
                "for this object before it has returned"
            )
        if is_late:
            _ = task.cancelled() or task.exception()  # looked at, so that asyncio does not report it as lost
            raise HandlerFault(f"took longer than {_shown(limit)} and was cancelled")
        if task.cancelled():
            raise HandlerFault("cancelled itself")
        return task.result()

    def _find(self, level: ViewParent) -> None:
        task = self._lost.pop(level, None)
        if task is not None and not task.cancelled():
            task.exception()


async def _awaited(function: Callable[[], Any]) -> Any:
    try:
        result = function()
        if isinstance(result, AsyncIterable):
            return [each async for each in result]
        return _in_full(await result) if isinstance(result, Awaitable) else result
    except SystemExit as error:  # asyncio would end the process with it
        raise HandlerFault(f"called sys.exit({error.code})") from error


def _without_exit(function: Callable[[], Any]) -> Callable[[], Any]:
    def call() -> Any:
        try:
            return function()
        except SystemExit as error:
            raise HandlerFault(f"called sys.exit({error.code})") from error

    return call


def _in_full(result: Any) -> Any:
    """Run a generator to its end, where its function runs."""
    is_generator = isinstance(result, Iterable) and not isinstance(result, Mapping | str | bytes | Intent)
    return list(result) if is_generator else result


def _is_async(result: Any) -> bool:
    return isinstance(result, AsyncIterable | Coroutine)


def _intents(result: Any) -> list[Intent]:
    """What a function gave, checked. Raises HandlerFault that says what to write instead."""
    if result is None:
        return []
    if isinstance(result, Intent):
        raise HandlerFault(f"returned one intent ({result.verb} {result.name}): yield it, or return a list")
    if isinstance(result, Mapping):
        raise HandlerFault("returned a mapping: yield intents, and wrap a manifest in apply(…)")
    if not isinstance(result, list):
        raise HandlerFault(f"returned {_kind(result)}: yield intents, or return a list of them")
    for each in result:
        if isinstance(each, Intent):
            continue
        if isinstance(each, Mapping):
            raise HandlerFault("yielded a mapping, which is not an intent: wrap a manifest in apply(…)")
        raise HandlerFault(f"yielded {_kind(each)}, which is not an intent: apply(…), patch(…), delete(…) make one")
    return result


def _kind(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _shown(limit: timedelta) -> str:
    return f"{limit.total_seconds():g} s"
