"""The actuator's own presence: its claims are safe while it renews this in time."""

import asyncio
import logging
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from levelog.absence import level_of
from levelog.counting import counted
from levelog.errors import Unavailable
from levelog_actuator.limits import ActuatorSettings
from levelog_store.actuate import presence
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.actuate.elapsed import elapsed
from levelog_store.connect.database import Database
from levelog_store.rows import Scope

log = logging.getLogger(__name__)

BEAT_SECONDS: Final = 1.0
"""How often an actuator renews its presence, and checks the others."""


class ActuatorPresence:
    """Renews the presence of this actuator, ends claims of actuators that are gone, and limits requests.

    A request begins only if its deadline is over before another actuator can take its claim. On SQLite none can.
    """

    def __init__(
        self,
        database: Database,
        scope: Scope,
        owner: str,
        settings: ActuatorSettings,
        *,
        on_ended: Callable[[], None],
        clock: Callable[[], float] = elapsed,
    ) -> None:
        """`on_ended` hears of claims that can be taken over. `clock` tells seconds; a test has another."""
        self._database = database
        self._scope = scope
        self._owner = owner
        self._settings = settings
        self._on_ended = on_ended
        self._clock = clock
        self._ends_at = -math.inf if database.is_shared else math.inf
        self._has_stayed = asyncio.Event()
        self.since = -math.inf
        """When it began, by `clock`: claims from before may be others' by now."""

    def limit(self, intent: ClaimedIntent) -> timedelta:
        """Deadline of a request for an intent: short for the first attempt of a write, whose claim ends soon."""
        is_brief = self._database.is_shared and _is_first_write(intent)
        return min(self._settings.brief, self._settings.request) if is_brief else self._settings.request

    def outlasts(self, intent: ClaimedIntent) -> bool:
        """Tell whether a request that begins now is over before others take the claim."""
        brief = self.limit(intent).total_seconds() if _is_first_write(intent) else 0.0
        return self._clock() + brief <= self._ends_at

    @property
    def is_there(self) -> bool:
        """Tell whether there is time for a request."""
        return self._clock() + self._settings.brief.total_seconds() <= self._ends_at

    async def until_there(self) -> None:
        """Wait until there is time for a request."""
        while not self.is_there:
            self._has_stayed.clear()
            await self._has_stayed.wait()

    async def run(self) -> None:
        """Renew the presence until cancelled."""
        while True:
            try:
                await self.stay()
                await asyncio.sleep(BEAT_SECONDS)
            except Unavailable as error:
                log.log(level_of(error), "the presence of this actuator is not renewed: %s", error)
                await self._database.absence.pause(BEAT_SECONDS)

    async def stay(self) -> None:
        """Renew it once; then end the claims of those that are gone, if this one was present all the time they had."""
        began, lasts = self._clock(), self._settings.presence
        async with self._database.transaction() as connection:
            await presence.stay(connection, self._scope, self._owner, lasts)
        if self._clock() > self._ends_at:  # it was over meanwhile
            self.since = self._clock()
        self._ends_at = began + lasts.total_seconds()
        self._has_stayed.set()
        if began - self.since < lasts.total_seconds():  # the others may have been without the database as well
            return
        async with self._database.transaction() as connection:
            ended = await presence.end_claims_of_gone(connection, self._scope, self._settings.request)
        if ended:
            log.info("%s of actuators that are gone can be taken over", counted(ended, "claim"))
            self._on_ended()


def _is_first_write(intent: ClaimedIntent) -> bool:
    return intent.attempts <= 1 and intent.verb not in ("call", "event")
