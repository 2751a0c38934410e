"""Limits of an actuator: settings, concurrent requests, retries, API groups that rest after 429, outages."""

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from msgspec import Struct

from levelog.absence import Absence
from levelog_actuator.answers import Reply
from levelog_actuator.results import Ended, Later, Result
from levelog_base.errors import ConfigurationError
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.actuate.outcomes import LOOK_AFTER
from levelog_store.decide.decisions import Sendable
from levelog_store.rows import namespace_of

log = logging.getLogger(__name__)


class ActuatorSettings(Struct, frozen=True, kw_only=True):
    """Settings of one actuator; all actuators of an application have the same.

    Raises ConfigurationError if a request may take longer than the claim under which it is sent, and without requests.
    """

    requests: int = 32
    """Requests at once."""
    group_requests: int = 24
    """Requests at once to one API group, so that a slow one (a webhook that hangs) leaves room for the others."""
    claimed: int = 256
    """Intents of one API group claimed at once, waiting ones included; of all groups together twice as many."""
    lease: timedelta = timedelta(seconds=30)
    """How long a claim lasts at the most, unless it is kept."""
    heartbeat_timeout: timedelta = timedelta(seconds=6)
    """How long a silent actuator counts as alive: most intents wait that long after it was killed."""
    brief: timedelta = timedelta(seconds=3)
    """Deadline of requests at the first attempt of a write, where others may take the claim: they are over before."""
    request: timedelta = timedelta(seconds=10)
    """Deadline of any other request; as long as kube-apiserver gives an admission webhook by default."""
    attempts: int = 10
    """How often a write is sent before its round fails, over two to three minutes with the delays below; and how often
    an effect is called before the intent may be withdrawn."""
    first_delay: timedelta = timedelta(milliseconds=500)
    most_delay: timedelta = timedelta(seconds=60)
    outage: timedelta = timedelta(seconds=2)
    """The longest wait before a server that cannot be reached is tried again."""
    longest: timedelta = timedelta(minutes=16)
    """Between two calls of an effect, which is called until it returns or gives up."""
    resync: timedelta = timedelta(seconds=10)
    """How often to query the database without a notification."""
    look_after: timedelta = LOOK_AFTER
    """How long the log may take to show a write before its target is read; it is read again when the write is twice as
    old, at least every `most_look`."""
    most_look: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        if min(self.requests, self.group_requests) < 1:
            raise ConfigurationError("an actuator needs a request at a time at least, in total and for each group")
        if self.request * 2 > self.lease:
            raise ConfigurationError(
                f"a claim of {self.lease.total_seconds():g} s is too short for requests that may take "
                f"{self.request.total_seconds():g} s: give it at least twice that"
            )
        if self.brief * 2 > self.heartbeat_timeout:
            raise ConfigurationError("the heartbeat of an actuator has to last at least twice a brief request")

    @property
    def few(self) -> int:
        """The actuator claims more once this many, or fewer, wait or are under way."""
        return min(2 * self.requests, self.claimed - 1)

    def delay(
        self,
        attempt: int,
        *,
        most: timedelta | None = None,
        retry_after: timedelta | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> timedelta:
        """How long to wait after an attempt, counted from 1: doubled each time, less up to half of it at random."""
        doubled = min(self.first_delay * float(2 ** min(attempt - 1, 30)), most or self.most_delay)
        return max(doubled * (1 - jitter() / 2), retry_after or timedelta(0))

    def outage_delay(self, failures: int) -> timedelta:
        """How long to wait for a server that could not be reached so many times in a row."""
        return min(self.delay(failures), self.outage)


def try_later(
    settings: ActuatorSettings,
    intent: ClaimedIntent,
    error: str,
    *,
    is_doubtful: bool | None = None,
    reply: Reply | None = None,
) -> Result:
    """Put an intent off, or give it up after its last attempt; without a connection, no attempt is used up.

    `is_doubtful`: a request may have taken effect; None: as was known when it was claimed.
    """
    is_unreachable = reply is not None and not reply.status and not reply.is_sent
    if not is_unreachable and intent.attempts >= settings.attempts:
        error = f"given up after {intent.attempts} attempts: {error}"
        return Ended(intent=intent, outcome="failed", uid=intent.target_uid, error=error)
    wait = settings.delay(intent.attempts, retry_after=reply.retry_after if reply else None)
    return Later(
        intent=intent,
        delay=min(wait, settings.outage) if is_unreachable else wait,
        error=error,
        is_doubtful=intent.is_doubtful if is_doubtful is None else is_doubtful,
        is_counted=not is_unreachable,
        is_unreachable=is_unreachable,
        is_throttled=reply is not None and reply.status == 429,
    )


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
    async def turn(self, intent: ClaimedIntent) -> AsyncGenerator[None]:
        """Wait until a request of the intent's group is allowed; waiting for the group uses none of the total."""
        turns = self._turns.setdefault(group_of(intent), Turns(self._settings.group_requests))
        async with turns.turn(namespace_of(intent.parent)), self._total:
            yield

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
        return not is_full and place not in self._of_namespaces and not self.resting(intent)

    def resting(self, intent: Sendable) -> timedelta:
        """How long nothing of the intent's group is to be sent; 0: it may be sent."""
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
