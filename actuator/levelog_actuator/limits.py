"""How many requests may go on at once, and what holds them up: API groups that rest, outages of the API server.

It counts and waits; it sends nothing, and asks no database.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from msgspec import Struct

from levelog.absence import Absence
from levelog_actuator.outbox import ActuatorSettings
from levelog_actuator.results import Later, Result
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.decide.decisions import Sendable
from levelog_store.rows import namespace_of

log = logging.getLogger(__name__)


class Room(Struct, frozen=True, kw_only=True):
    """What may be claimed now."""

    limit: int
    without: tuple[str, ...]
    """API versions of the groups that have enough, or rest."""


class Turns:
    """Limits how many run at a time; waiting namespaces take turns."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting requests by namespace; the first one is next."""

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncGenerator[None]:
        """Wait for a turn, and have it."""
        if self._free:
            self._free -= 1
        else:
            given = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(namespace, deque()).append(given)
            try:
                await given
            except asyncio.CancelledError:
                if not given.cancelled():  # it was given as its waiter was cancelled
                    self.release()
                raise
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Give a turn to whoever is next."""
        while self._waiting:
            namespace = next(iter(self._waiting))
            waiting = self._waiting.pop(namespace)
            given = waiting.popleft()
            if waiting:
                self._waiting[namespace] = waiting
            if not given.done():
                given.set_result(None)
                return
        self._free += 1


class Limits:
    """Turns for requests, and room for claims: a group that is slow or rests leaves the others their room.

    A group rests after the API answered 429: nothing in it is sent before the time is over, not even newer intents.
    """

    def __init__(self, settings: ActuatorSettings, clock: Callable[[], float] | None = None) -> None:
        """`clock` tells seconds; it is that of the event loop unless a test has another."""
        self._settings = settings
        self._clock = clock or _now
        self._total = asyncio.Semaphore(settings.requests)
        self._turns: dict[str, Turns] = {}
        self._claimed: Counter[str] = Counter()
        self._of_namespaces: Counter[tuple[str, str]] = Counter()
        """Requests by API group and namespace of the target."""
        self._versions: dict[str, set[str]] = {}
        self._rests: dict[str, float] = {}
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def turn(self, intent: ClaimedIntent) -> AsyncGenerator[timedelta]:
        """Wait for a turn of the intent's group, which uses none of the total; yields how long it rests then, or 0."""
        turns = self._turns.setdefault(group_of(intent), Turns(self._settings.group_requests))
        async with turns.turn(namespace_of(intent.parent)), self._total:
            yield self._resting(intent)

    def end_waiting(self) -> None:
        """Give a turn to everything that waits for one."""
        waiting = self._claimed.total()
        for release in (self._total.release, *(turns.release for turns in self._turns.values())):
            for _ in range(waiting):
                release()

    def begin(self, intent: ClaimedIntent) -> None:
        """Count a claimed intent."""
        group = group_of(intent)
        self._versions.setdefault(group, set()).add(intent.api_version)
        self._claimed[group] += 1
        self._of_namespaces[group, namespace_of(intent.target)] += 1
        self._changed.set()

    def end(self, intent: ClaimedIntent) -> None:
        """Note that a claimed intent is done with."""
        place = group, _ = group_of(intent), namespace_of(intent.target)
        self._claimed[group] -= 1
        self._of_namespaces[place] -= 1
        if not self._of_namespaces[place]:
            del self._of_namespaces[place]
        self._changed.set()

    def rest(self, intent: ClaimedIntent, time: timedelta) -> None:
        """Send nothing of the intent's group for so long."""
        group = group_of(intent)
        self._rests[group] = max(self._rests.get(group, 0.0), self._clock() + time.total_seconds())
        self._changed.set()

    def is_calm(self, intent: Sendable) -> bool:
        """Tell whether nothing of its group is claimed for its target's namespace, and the group does not rest."""
        is_full = self._claimed.total() >= 2 * self._settings.claimed
        place = group_of(intent), namespace_of(intent.target)
        return not is_full and place not in self._of_namespaces and not self._resting(intent)

    def _resting(self, intent: Sendable) -> timedelta:
        return timedelta(seconds=max(0.0, self._rests.get(group_of(intent), 0.0) - self._clock()))

    async def until_open(self, most: timedelta) -> None:
        """Wait until intents of every group may be claimed, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most.total_seconds()):
                while not self._is_open:
                    self._changed.clear()
                    await self._changed.wait()

    @property
    def room(self) -> Room:
        """What may be claimed now: for each group, enough to keep it busy for the length of a claim."""
        now = self._clock()
        closed = {group for group, count in self._claimed.items() if count > self._settings.few}
        closed |= {group for group, end in self._rests.items() if end > now}
        others = [count for group, count in self._claimed.items() if group not in closed]
        most = self._settings.claimed
        limit = min(most - max(others, default=0), 2 * most - self._claimed.total())
        if sum(others) > self._settings.few:  # enough to go on with; rather claim many at once
            limit = 0
        without = {version for group in closed for version in self._versions.get(group, ())}
        return Room(limit=max(0, limit), without=tuple(sorted(without)))

    @property
    def _is_open(self) -> bool:
        room = self.room
        return room.limit > 0 and not room.without


def group_of(intent: Sendable) -> str:
    """API group of an intent's target; empty: core."""
    return intent.api_version.rpartition("/")[0]


class Outage:
    """Whether the API server can be reached, as far as the last results tell."""

    def __init__(self, settings: ActuatorSettings, absence: Absence) -> None:
        self._settings = settings
        self._absence = absence
        self._failures = 0
        self._ends_at = 0.0

    @property
    def is_on(self) -> bool:
        """The last request found no server."""
        return self._failures > 0

    @property
    def is_closed(self) -> bool:
        """Nothing is to be sent now."""
        return _now() < self._ends_at

    async def wait(self) -> None:
        """Wait until the server may be tried again, or has answered somebody."""
        if self.is_closed:
            await self._absence.pause(self._ends_at - _now())
            self._ends_at = 0.0

    def note(self, result: Result) -> None:
        """Take note of a result."""
        if isinstance(result, Later) and result.is_unreachable:
            if not self.is_closed:
                self._failures += 1
                delay = self._settings.outage_delay(self._failures).total_seconds()
                self._ends_at = _now() + delay
                log.debug("nothing is sent for %.1f s: %s", delay, result.error)
        elif not isinstance(result, Later) or result.is_counted:
            self._failures = 0


def _now() -> float:
    return asyncio.get_running_loop().time()
