"""Loses races on purpose: calls at a place that `LEVELOG_TEST_SLOWED` names wait first, commands in processes included.

Tests that count statements, or time that passes, may then fail for that reason alone.
"""

import asyncio
import inspect
import os
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pkgutil import resolve_name
from typing import Any, Final

_PLACES: Final = {
    "answer": "levelog_sandbox.api.server:Server.handle",
    "claim": "levelog_actuator.actuator:Actuator._claim",
    "decide": "levelog_processors.loop:Loop._decide",
    "fold": "levelog_processors.loop:Loop._fold",
    "notify": "levelog_log.notifications:Notifier._send",
    "publish": "levelog_log.publisher:BatchPublisher.publish",
    "read": "levelog_log.reader:Reader.next_batch",
    "request": "levelog_log.transport.connection:Connection.ask",
    "transaction": "levelog_store.connect.database:Database.transaction",
    "watch": "levelog_kube.client:KubeClient._lines",
    "write": "levelog_processors.loop:Loop._write",
}
_ALL: Final = "all"
_PAUSE_SECONDS: Final = 0.4
_ONE_IN: Final = 4
"""How many calls one waits of, where all places are slowed."""


def slow_down() -> None:
    """Let calls wait, each at the places named, or some of those at each place, for a random time."""
    chosen = os.environ.get("LEVELOG_TEST_SLOWED", "")
    pause = _pause_at_times if chosen == _ALL else _pause
    for place in _PLACES if chosen == _ALL else chosen.split():
        owner, _, name = _PLACES[place].rpartition(".")
        of = resolve_name(owner)
        setattr(of, name, _slowed(getattr(of, name), pause))


async def _pause() -> None:
    await asyncio.sleep(_PAUSE_SECONDS)


async def _pause_at_times() -> None:
    if not random.randrange(_ONE_IN):
        await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS))


def _slowed(function: Callable[..., Any], pause: Callable[[], Any]) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        await pause()
        return await function(*args, **kwargs)

    @wraps(function)
    async def iterate(*args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        async for each in function(*args, **kwargs):
            for one in each:  # what came in one piece comes in many
                await pause()
                yield [one]

    @asynccontextmanager
    async def enter(*args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        await pause()
        async with function(*args, **kwargs) as entered:
            yield entered

    if inspect.iscoroutinefunction(function):
        return call
    return iterate if inspect.isasyncgenfunction(function) else enter
