"""The actuator's own heartbeat: its claims are safe while it beats in time."""

import asyncio
import logging
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct, field

from levelog.absence import level_of
from levelog_actuator.limits import ActuatorSettings
from levelog_base.counting import counted
from levelog_base.errors import Unavailable
from levelog_store.actuate import heartbeats
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.actuate.elapsed import elapsed
from levelog_store.connect.database import Database
from levelog_store.rows import Scope

log = logging.getLogger(__name__)

BEAT_SECONDS: Final = 1.0
"""How often an actuator beats, and checks the others."""


class Heartbeat(Struct, eq=False):
    """Beats for this actuator, ends claims of actuators that are gone, and limits requests.

    A request begins only if its deadline is over before another actuator can take its claim. On SQLite none can.
    """

    database: Database
    scope: Scope
    owner: str
    settings: ActuatorSettings
    on_ended: Callable[[], None]
    """Hears of claims that can be taken over."""
    clock: Callable[[], float] = elapsed
    """Tells seconds; a test has another."""
    ends_at: float = -math.inf
    has_beaten: asyncio.Event = field(default_factory=asyncio.Event)
    since: float = -math.inf
    """When it began, by `clock`: claims from before may be others' by now."""
    told: tuple[datetime, float] | None = None
    """The database's time, and when it was that, by `clock`."""

    def __post_init__(self) -> None:
        self.ends_at = -math.inf if self.database.is_shared else math.inf

    def limit(self, intent: ClaimedIntent) -> timedelta:
        """Deadline of a request for an intent: short for the first attempt of a write, whose claim ends soon."""
        is_brief = self.database.is_shared and _is_first_write(intent)
        return min(self.settings.brief, self.settings.request) if is_brief else self.settings.request

    def outlasts(self, intent: ClaimedIntent) -> bool:
        """Tell whether a request that begins now is over before others take the claim."""
        brief = self.limit(intent).total_seconds() if _is_first_write(intent) else 0.0
        return self.clock() + brief <= self.ends_at

    def now(self) -> datetime:
        """The time by which levels are decided: that of the database, whatever this machine's clock says."""
        if self.told is None:  # a file on this machine
            return datetime.now(UTC)
        moment, at = self.told
        return moment + timedelta(seconds=self.clock() - at)

    @property
    def is_fresh(self) -> bool:
        """Tell whether there is time for a request."""
        return self.clock() + self.settings.brief.total_seconds() <= self.ends_at

    async def until_fresh(self) -> None:
        """Wait until there is time for a request."""
        while not self.is_fresh:
            self.has_beaten.clear()
            await self.has_beaten.wait()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            try:
                await self.beat()
                await asyncio.sleep(BEAT_SECONDS)
            except Unavailable as error:
                log.log(level_of(error), "the heartbeat of this actuator does not reach the database: %s", error)
                await self.database.absence.pause(BEAT_SECONDS)

    async def beat(self) -> None:
        """Beat once; then end the claims of actuators that are gone, if this one was alive all the time they had."""
        began, lasts = self.clock(), self.settings.heartbeat_timeout
        async with self.database.transaction() as connection:
            moment, has_gone = await heartbeats.beat(connection, self.scope, self.owner, lasts)
        self.told = moment, began
        if self.clock() > self.ends_at:  # it was over meanwhile
            self.since = self.clock()
        self.ends_at = began + lasts.total_seconds()
        self.has_beaten.set()
        if not has_gone or began - self.since < lasts.total_seconds():  # others may have been without it as well
            return
        async with self.database.transaction() as connection:
            ended = await heartbeats.end_claims_of_gone(connection, self.scope, self.settings.request)
        if ended:
            log.info("%s of actuators that are gone can be taken over", counted(ended, "claim"))
            self.on_ended()


def _is_first_write(intent: ClaimedIntent) -> bool:
    return intent.attempts <= 1 and intent.verb not in ("call", "event")
