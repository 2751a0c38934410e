"""Calling reconcile functions of then: without the network, and where a debugger can stop them if somebody wants to."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

from levelog.calls.audit import offline
from levelog.calls.faults import Interruption, contained
from levelog.handlers.views import ReconcileHandler
from levelog.intents import Intent
from levelog_processors.decide.functions import Caller
from levelog_replay.stops.stopping import ReachedOutside, Stops, outside
from levelog_store.rows import ViewParent


class ReplayCaller(Caller):
    """Calls functions as they are called live, but for the network.

    While somebody debugs, they are called one after the other, in the thread of the loop, and may take any time.
    """

    def __init__(self, *, threads: int, allows_network: bool = False, stops: Stops | None = None) -> None:
        super().__init__(threads=threads)
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

    async def run(self, key: Hashable, function: Callable[[], Any], limit: timedelta, *, is_async: bool) -> Any:
        """Call a function; raises HandlerFault where it reaches for the network."""
        with self._around():
            if self._stops is None:
                return await super().run(key, function, limit, is_async=is_async)
            if not self._stops.is_on:
                try:
                    with outside():
                        return await super().run(key, function, limit, is_async=is_async)
                except ReachedOutside:
                    pass  # called again, where it can be stopped
            async with self._turn:
                return await self._run_here(self._stops, key, function)

    async def _run_here(self, stops: Stops, key: Any, function: Callable[[], Any]) -> Any:
        with stops.at("reconcile function", key, self._handlers[key].function):
            try:
                result = function()
                return await result if isinstance(result, Awaitable) else result
            except (Exception, asyncio.CancelledError, Interruption):
                raise
            except BaseException as error:
                raise contained(error) from error
