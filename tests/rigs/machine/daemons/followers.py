"""The operator of the daemons' machine, and how its daemons wait: in no time of their own, and known to the machine."""

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, Protocol

from levelog import Operator, Struct
from levelog.daemons import Daemon
from levelog_actuator.daemoncalls import Pauses, is_following
from rigs.machine.operator import Web


class Kept(Struct):
    """What daemons keep."""

    serial: int
    """Different each time."""


class Following(Protocol):
    """Runs as a daemon does, as the machine says."""

    def __call__(self, handler: str, web: Web, daemon: Daemon[Web, Kept], /) -> Awaitable[None]: ...


LABELS: Final = {"follow": "", "tail": "web"}
"""Value of `app` that the objects of each daemon have to have; empty: all fit."""


def fits(handler: str, body: Any) -> bool:
    """Tell whether an object is a daemon's."""
    label = LABELS[handler]
    return not label or (body["metadata"].get("labels") or {}).get("app") == label


def make_followers(following: Following) -> Operator:
    """The operator."""
    op = Operator("machine")

    @op.daemon
    async def follow(web: Web, daemon: Daemon[Web, Kept]) -> None:
        await following("follow", web, daemon)

    @op.daemon(labels={"app": "web"})
    async def tail(web: Web, daemon: Daemon[Web, Kept]) -> None:
        await following("tail", web, daemon)

    return op


run_waiting: Final[ContextVar[str]] = ContextVar("run that waits", default="")
"""The key of the run that goes on here."""

is_function: Final[ContextVar[bool]] = ContextVar("whether the function of a run goes on here", default=False)
"""And not what waits for it to end."""


class _Wait:
    def __init__(self, *, is_timed: bool) -> None:
        self.run = run_waiting.get()
        self.kind = "object" if is_following.get() else "function" if is_function.get() else "grace"
        self.is_timed = is_timed
        self.woken = asyncio.Event()


class SteppedPauses(Pauses):
    """Knows which runs wait, and ends their waits when the machine says that time has passed."""

    def __init__(self) -> None:
        self._waits: set[_Wait] = set()

    @contextmanager
    def _waiting(self, *, is_timed: bool) -> Generator[asyncio.Event]:
        wait = _Wait(is_timed=is_timed)
        self._waits.add(wait)
        try:
            yield wait.woken
        finally:
            self._waits.discard(wait)

    @contextmanager
    def watching(self) -> Generator[None]:
        """While something waits for an index to change."""
        with self._waiting(is_timed=False):
            yield

    async def pause(self, event: asyncio.Event, delay: timedelta | None = None) -> None:
        """As Pauses.pause."""
        await asyncio.sleep(0)
        if event.is_set():
            return
        with self._waiting(is_timed=delay is not None) as woken:
            waits = [asyncio.create_task(each.wait()) for each in (event, woken)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waits:
                    each.cancel()

    def wake(self) -> None:
        """Let the time of all sleeps be over."""
        for each in self._waits:
            if each.is_timed:
                each.woken.set()

    def is_at_rest(self, run: str) -> bool:
        """Tell whether a run waits: its function does, and what follows its object."""
        return {each.kind for each in self._waits if each.run == run} >= {"function", "object"}
