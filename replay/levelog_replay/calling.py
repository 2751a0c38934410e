"""Calls recorded functions again: without network, and in a debugger if asked for."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

from levelog.calls.audithook import check_purity, offline
from levelog.calls.caller import awaited
from levelog.handlers.viewhandlers import ReconcileHandler
from levelog.intents import Intent
from levelog_processors.decide.functions import Caller
from levelog_replay.stops.stopping import ReachedOutside, Stops, outside
from levelog_store.rows import ViewParent


class ReplayCaller(Caller):
    """Calls functions as they are called live, but without the network; views and the like do no I/O at all.

    While somebody debugs, they are called one after the other, in the thread of the loop, and may take any time.
    """

    def __init__(self, *, threads: int, allows_network: bool = False, stops: Stops | None = None) -> None:
        super().__init__(threads=threads)
        check_purity()
        self._around = nullcontext if allows_network else offline
        self._stops = stops
        self._turn = asyncio.Lock()
        self._handlers: dict[Hashable, ReconcileHandler] = {}

    async def call(self, level: ViewParent, handler: ReconcileHandler, arguments: Mapping[str, Any]) -> list[Intent]:
        """Call a function and return its intents; raises as the one that calls live does, and DebuggerLeft."""
        self._handlers[level] = handler
        try:
            return await super().call(level, handler, arguments)
        finally:
            del self._handlers[level]

    async def run(self, key: Any, function: Callable[[], Any], limit: timedelta, *, is_async: bool) -> Any:
        """Call a function; raises HandlerFault where it reaches for the network."""
        live = partial(super().run, key, function, limit, is_async=is_async)
        with self._around():
            return await stoppable(self._stops, live, partial(self._run_here, key, function))

    async def _run_here(self, key: Any, function: Callable[[], Any], stops: Stops) -> Any:
        async with self._turn:
            with stops.at("reconcile function", key, self._handlers[key].function):
                return await awaited(function)


async def stoppable(
    stops: Stops | None, live: Callable[[], Awaitable[Any]], here: Callable[[Stops], Awaitable[Any]]
) -> Any:
    """Call a function as it is called live, or `here`, in the thread of the loop, if somebody wants to stop it."""
    if stops is None:
        return await live()
    if not stops.is_on:
        try:
            with outside():
                return await live()
        except ReachedOutside:
            pass  # called again, where it can be stopped
    return await here(stops)
