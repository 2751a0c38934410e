"""How many requests are under way, in total and for each API group, and which groups the API asked to leave alone."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from msgspec import Struct

from levelog_actuator.settings import ActuatorSettings
from levelog_store.actuate.claims import ClaimedIntent


class Room(Struct, frozen=True, kw_only=True):
    """What may be claimed now."""

    limit: int
    without: tuple[str, ...]
    """API versions of the groups that have enough, or rest."""


class Limits:
    """Turns for requests, and room for claims: a group that is slow, or rests, leaves the others theirs.

    A group rests after the API answered 429: nothing of it is sent before the time is over, also what was decided
    meanwhile.
    """

    def __init__(self, settings: ActuatorSettings, clock: Callable[[], float] | None = None) -> None:
        """`clock` tells seconds; it is that of the event loop unless a test has another."""
        self._settings = settings
        self._clock = clock or _loop_time
        self._total = asyncio.Semaphore(settings.requests)
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._claimed: Counter[str] = Counter()
        self._versions: dict[str, set[str]] = {}
        self._rests: dict[str, float] = {}
        self._is_open = asyncio.Event()
        self._is_open.set()

    @asynccontextmanager
    async def turn(self, intent: ClaimedIntent) -> AsyncGenerator[None]:
        """Wait until a request of the intent's group is allowed; who waits for the group takes nothing of the total."""
        async with self._turns_of(group_of(intent)), self._total:
            yield

    def end_waiting(self) -> None:
        """Let everybody who waits for a turn have it."""
        waiting = self._claimed.total()
        for turns in (self._total, *self._turns.values()):
            for _ in range(waiting):
                turns.release()

    def begin(self, intent: ClaimedIntent) -> None:
        """Count a claimed intent."""
        group = group_of(intent)
        self._versions.setdefault(group, set()).add(intent.api_version)
        self._claimed[group] += 1
        self._note()

    def end(self, intent: ClaimedIntent) -> None:
        """Note that a claimed intent is done with."""
        self._claimed[group_of(intent)] -= 1
        self._note()

    def rest(self, intent: ClaimedIntent, time: timedelta) -> None:
        """Send nothing of the intent's group for so long."""
        group = group_of(intent)
        self._rests[group] = max(self._rests.get(group, 0.0), self._clock() + time.total_seconds())
        self._note()

    def resting(self, intent: ClaimedIntent) -> timedelta:
        """How long nothing of the intent's group is to be sent; 0: it may be sent."""
        return timedelta(seconds=max(0.0, self._rests.get(group_of(intent), 0.0) - self._clock()))

    async def until_open(self, most: timedelta) -> None:
        """Wait until intents of every group may be claimed, or for so long."""
        try:
            async with asyncio.timeout(most.total_seconds()):
                await self._is_open.wait()
        except TimeoutError:
            self._note()  # a rest may be over

    @property
    def room(self) -> Room:
        """What may be claimed: of each group so much that it can go on with it during the claim."""
        closed = self._closed()
        others = [count for group, count in self._claimed.items() if group not in closed]
        most = self._settings.claimed
        limit = min(most - max(others, default=0), 2 * most - self._claimed.total())
        if sum(others) > self._settings.few:  # enough to go on with; rather claim many at once
            limit = 0
        without = {version for group in closed for version in self._versions.get(group, ())}
        return Room(limit=max(0, limit), without=tuple(sorted(without)))

    def _closed(self) -> set[str]:
        now = self._clock()
        full = {group for group, count in self._claimed.items() if count > self._settings.few}
        return full | {group for group, end in self._rests.items() if end > now}

    def _note(self) -> None:
        room = self.room
        if room.limit > 0 and not room.without:
            self._is_open.set()
        else:
            self._is_open.clear()

    def _turns_of(self, group: str) -> asyncio.Semaphore:
        return self._turns.setdefault(group, asyncio.Semaphore(self._settings.group_requests))


def group_of(intent: ClaimedIntent) -> str:
    """API group of an intent's target; empty: core."""
    return intent.api_version.rpartition("/")[0]


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
