"""The outbox of one application: the table `intents`, as one actuator works on it, and its settings."""

import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec import Struct

from levelog.absence import doubled
from levelog_base.errors import ConfigurationError
from levelog_store.actuate.outcomes import LOOK_AFTER
from levelog_store.connect.database import Database
from levelog_store.rows import Scope

P = ParamSpec("P")
T = TypeVar("T")


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
        wait = doubled(self.first_delay, attempt, most or self.most_delay)
        return max(wait * (1 - jitter() / 2), retry_after or timedelta(0))

    def outage_delay(self, failures: int) -> timedelta:
        """How long to wait for a server that could not be reached so many times in a row."""
        return min(self.delay(failures), self.outage)


class Outbox(Struct, frozen=True):
    """The intents of one application, as one actuator claims them."""

    database: Database
    scope: Scope
    owner: str
    """By which the actuator's claims are known."""
    settings: ActuatorSettings

    async def read(
        self, query: Callable[Concatenate[Any, Scope, P], Awaitable[T]], *args: P.args, **options: P.kwargs
    ) -> T:
        """The result of a query of the store."""
        async with self.database.reading() as connection:
            return await query(connection, self.scope, *args, **options)

    async def write_durably(
        self, change: Callable[Concatenate[Any, Scope, P], Awaitable[T]], *args: P.args, **options: P.kwargs
    ) -> T:
        """Make a change of the store in a transaction of its own that is on disk once this returns."""
        async with self.database.transaction() as connection:
            return await change(connection, self.scope, *args, **options)

    async def write(
        self, change: Callable[Concatenate[Any, Scope, P], Awaitable[T]], *args: P.args, **options: P.kwargs
    ) -> T:
        """The same, as far as a crash of the machine may undo it: the log or the target tells it again."""
        async with self.database.transaction(durable=False) as connection:
            return await change(connection, self.scope, *args, **options)
