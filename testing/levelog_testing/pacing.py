"""Daemons in simulated time: time passes only once each of them waits."""

import asyncio
import math
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Final

from levelog_actuator.daemoncalls import Pauses, is_following
from levelog_actuator.results import Result
from levelog_base.errors import LevelogError
from levelog_testing.clock import Clock

PATIENCE: Final = timedelta(seconds=5)
"""Real time that a daemon may take between two waits."""
_ENDS_WITHIN: Final = 0.5
"""Seconds of real time in which a daemon that was told to end does so, or waits; then its grace passes."""
_ROUNDS: Final = 25
"""Rounds of the event loop after which what was woken has left its wait."""

_run: Final[ContextVar[str]] = ContextVar("levelog_simulated_run", default="")


class _Parked:
    def __init__(self, run: str, due: datetime | None, *, is_object: bool, counts_from: float) -> None:
        self.run = run
        self.due = due
        self.is_object = is_object
        self.counts_from = counts_from
        """When it is at rest, by the event loop's clock: later if a function goes on beside it."""
        self.woken = asyncio.Event()


class VirtualPauses(Pauses):
    """Knows what waits, and until when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parked: set[_Parked] = set()
        self.is_over = False
        self.moved = asyncio.Event()
        """Something has begun to wait."""

    @property
    def due_at(self) -> datetime | None:
        """When the first wait is over."""
        return min((each.due for each in self._parked if each.due is not None), default=None)

    def is_at_rest(self, run: str) -> bool:
        """Tell whether a run waits: its function does, and what follows its object."""
        now = asyncio.get_running_loop().time()
        mine = [each.is_object for each in self._parked if each.run == run and each.counts_from <= now]
        return True in mine and False in mine

    @property
    def counts_within(self) -> float:
        """Seconds until one more wait counts."""
        now = asyncio.get_running_loop().time()
        return min((each.counts_from - now for each in self._parked if each.counts_from > now), default=math.inf)

    def wake(self) -> None:
        """End the waits whose time has come."""
        for each in self._parked:
            if each.due is not None and each.due <= self._clock.now:
                each.woken.set()

    def end(self) -> None:
        """End all waits, those to come too."""
        self.is_over = True
        for each in self._parked:
            each.woken.set()

    @contextmanager
    def waiting(self, due: datetime | None = None, *, counts_from: float = 0.0) -> Generator[asyncio.Event]:
        """While something waits."""
        parked = _Parked(_run.get(), due, is_object=is_following.get(), counts_from=counts_from)
        self._parked.add(parked)
        self.moved.set()
        try:
            yield parked.woken
        finally:
            self._parked.discard(parked)

    async def pause(self, event: asyncio.Event, delay: timedelta | None = None, *, counts_from: float = 0.0) -> None:
        """Wait for the event, or until so much of the simulation's time has passed."""
        if self.is_over or event.is_set() or (delay is not None and delay <= timedelta(0)):
            await asyncio.sleep(0)
            return
        with self.waiting(None if delay is None else self._clock.now + delay, counts_from=counts_from) as woken:
            waits = [asyncio.create_task(each.wait()) for each in (event, woken)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waits:
                    each.cancel()

    async def until_ended(self, ended: asyncio.Event, grace: timedelta) -> None:
        """Wait for a function to end; it may compute, in a thread too."""
        await self.pause(ended, grace, counts_from=asyncio.get_running_loop().time() + _ENDS_WITHIN)


class Runs:
    """The daemons that run in a simulation, by the keys of their calls."""

    def __init__(self, pauses: VirtualPauses) -> None:
        self._pauses = pauses
        self._tasks: dict[str, asyncio.Task[Result]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._tasks

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, key: str, name: str, call: Coroutine[Any, Any, Result]) -> None:
        """Let a daemon run."""

        async def run() -> Result:
            _run.set(key)
            return await call

        self._tasks[key] = asyncio.create_task(run(), name=name)

    async def settle(self) -> tuple[bool, list[Result]]:
        """Let all run until each waits, or has ended: tells whether one moved, and what came of those that ended.

        Raises LevelogError if one waits for something else.
        """
        if not self._tasks:
            return False, []
        end = asyncio.get_running_loop().time() + PATIENCE.total_seconds()
        has_moved = False
        while True:
            self._pauses.moved.clear()
            for _ in range(_ROUNDS):
                await asyncio.sleep(0)
            done = {key for key, task in self._tasks.items() if task.done()}
            busy = [key for key in self._tasks if key not in done and not self._pauses.is_at_rest(key)]
            if not busy:
                return has_moved or bool(done), [self._tasks.pop(key).result() for key in done]
            has_moved = True
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                raise LevelogError(
                    f"{self._tasks[busy[0]].get_name()} waits for something that a simulation does not step: let it "
                    "wait by what its Daemon gives, or by a LiveIndex"
                )
            moving = asyncio.create_task(self._pauses.moved.wait())
            ends = {moving, *(self._tasks[key] for key in busy)}
            left = min(left, self._pauses.counts_within)
            await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            moving.cancel()

    async def end(self) -> None:
        """End them as a process does that has no time."""
        self._pauses.end()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
