"""The claims of this actuator: whether each is its own, for how long, and what keeps it so: renewals and a heartbeat.

It asks the database, and ends the claims of actuators that are gone. It claims no intent, and sends nothing.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct, field

from levelog.absence import level_of
from levelog_actuator.outbox import Outbox
from levelog_base.counting import counted
from levelog_base.errors import Unavailable
from levelog_store.actuate import claims, heartbeats
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.actuate.elapsed import elapsed

log = logging.getLogger(__name__)

BEAT_SECONDS: Final = 1.0
"""How often an actuator beats, and checks the others."""
RECHECK_SECONDS: Final = 1.0
"""A claim that waited longer for its turn is looked up again before anything is done under it."""


class _OwnClaim(Struct, eq=False):
    key: str
    number: int
    known_at: float
    """When it was last known to be this actuator's; minus infinity: it may not be committed."""
    ends_at: float
    """When others may have it, although this actuator is alive."""
    lose: Callable[[], None] | None
    """Ends what runs under a claim that is kept; None: it is not kept, but ends with its lease."""


class OwnClaims(Struct, eq=False):
    """The claims under which this actuator sends and calls, and the heartbeat that they depend on.

    A request begins only if its deadline is over before another actuator can take its claim. On SQLite none can.
    However many claims wait, they are looked up once in `RECHECK_SECONDS`: an overload does not feed itself.
    """

    outbox: Outbox
    on_ended: Callable[[], None]
    """Hears of others' claims that can be taken over."""
    clock: Callable[[], float] = elapsed
    """Tells seconds; a test has another."""
    alive_until: float = -math.inf
    """When others may end its claims, as its heartbeat is over."""
    alive_since: float = -math.inf
    """When its heartbeat began: claims from before may be others' by now."""
    has_beaten: asyncio.Event = field(default_factory=asyncio.Event)
    database_time: tuple[datetime, float] | None = None
    """The database's time, and when it was that, by `clock`."""
    own: dict[str, _OwnClaim] = {}
    """By the keys of their intents."""
    looking: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.alive_until = -math.inf if self.outbox.database.is_shared else math.inf

    def begin(self, intent: ClaimedIntent, since: float, lose: Callable[[], None] | None = None) -> None:
        """Add a claim that was made at `since`; at minus infinity it is unknown whether it was committed.

        With `lose` it is kept until `end`.
        """
        ends_at = since + self.outbox.settings.lease.total_seconds()
        self.own[intent.key] = _OwnClaim(intent.key, intent.claim, since, ends_at, lose)

    def end(self, intent: ClaimedIntent) -> None:
        """Forget a claim."""
        if self._of(intent):
            del self.own[intent.key]

    def _of(self, intent: ClaimedIntent) -> _OwnClaim | None:
        own = self.own.get(intent.key)
        return own if own is not None and own.number == intent.claim else None

    async def why_not(self, intent: ClaimedIntent) -> str:
        """Why nothing may begin under the claim: others may have it, or soon; empty: something may."""
        try:
            is_mine = await self.is_mine(intent)
        except Unavailable as error:
            return f"its claim cannot be looked up: {error}"
        return "" if is_mine and self.outlasts(intent) else "its claim has ended or is about to"

    async def is_mine(self, intent: ClaimedIntent) -> bool:
        """Tell whether the claim is this actuator's, as known a moment ago. Raises Unavailable."""
        moment = self.clock() - RECHECK_SECONDS
        while (own := self._of(intent)) is not None:
            if own.known_at >= max(self.alive_since, moment):
                return True
            if self.looking is None or self.looking.done():
                self.looking = asyncio.create_task(self._look(), name="actuator looks its claims up")
            await asyncio.shield(self.looking)
        return False

    def outlasts(self, intent: ClaimedIntent) -> bool:
        """Tell whether a request that begins now is over before others may have the claim."""
        own, now, limit = self._of(intent), self.clock(), self.limit(intent).total_seconds()
        brief = limit if _is_first_write(intent) else 0.0
        return own is not None and now + limit < own.ends_at and now + brief <= self.alive_until

    def limit(self, intent: ClaimedIntent) -> timedelta:
        """Deadline of a request for an intent: short for the first attempt of a write, whose claim ends soon."""
        settings, is_brief = self.outbox.settings, self.outbox.database.is_shared and _is_first_write(intent)
        return min(settings.brief, settings.request) if is_brief else settings.request

    async def _look(self) -> None:
        outbox, at, asked = self.outbox, self.clock(), list(self.own.values())
        found = await outbox.read(claims.still_claimed, outbox.owner, [each.key for each in asked])
        for each in asked:
            if each.key in found:
                each.known_at = max(at, each.known_at)
            else:
                self._lose(each)

    def _lose(self, own: _OwnClaim) -> None:
        if self.own.get(own.key) is own:  # it has not ended, and was not claimed anew
            del self.own[own.key]
            if own.lose is not None:
                own.lose()

    async def keep(self) -> None:
        """Let the claims of calls last for another lease; what runs under those that are lost hears of it."""
        outbox, began, lease = self.outbox, self.clock(), self.outbox.settings.lease
        kept = [each for each in self.own.values() if each.lose is not None]
        if not kept:
            return
        try:
            found = await outbox.write(claims.keep, outbox.owner, [each.key for each in kept], lease=lease)
        except Unavailable as error:
            log.log(level_of(error), "claims are not kept, of %s: %s", counted(len(kept), "call"), error)
            for each in kept:  # which this actuator may still claim again
                if each.lose is not None and self.clock() > each.ends_at:
                    each.lose()
            return
        for each in kept:
            if each.key in found:
                each.known_at, each.ends_at = began, began + lease.total_seconds()
            else:
                self._lose(each)

    async def keep_on(self) -> None:
        """Keep the claims of calls until cancelled."""
        while True:
            await asyncio.sleep(self.outbox.settings.lease.total_seconds() / 3)
            await self.keep()

    def now(self) -> datetime:
        """The time by which levels are decided: that of the database, whatever this machine's clock says."""
        if self.database_time is None:  # a file on this machine
            return datetime.now(UTC)
        moment, at = self.database_time
        return moment + timedelta(seconds=self.clock() - at)

    @property
    def is_fresh(self) -> bool:
        """Tell whether there is time for a request."""
        return self.clock() + self.outbox.settings.brief.total_seconds() <= self.alive_until

    async def until_fresh(self) -> None:
        """Wait until there is time for a request."""
        while not self.is_fresh:
            self.has_beaten.clear()
            await self.has_beaten.wait()

    async def beat_on(self) -> None:
        """Beat until cancelled."""
        while True:
            try:
                await self.beat()
                await asyncio.sleep(BEAT_SECONDS)
            except Unavailable as error:
                log.log(level_of(error), "the heartbeat of this actuator does not reach the database: %s", error)
                await self.outbox.database.absence.pause(BEAT_SECONDS)

    async def beat(self) -> None:
        """Beat once; then end the claims of actuators that are gone, if this one was alive all the time they had."""
        outbox, began, lasts = self.outbox, self.clock(), self.outbox.settings.heartbeat_timeout
        moment, has_gone = await outbox.write_durably(heartbeats.beat, outbox.owner, lasts)
        self.database_time = moment, began
        if self.clock() > self.alive_until:  # it was over meanwhile
            self.alive_since = self.clock()
        self.alive_until = began + lasts.total_seconds()
        self.has_beaten.set()
        if not has_gone or began - self.alive_since < lasts.total_seconds():  # others may have been without it as well
            return
        if ended := await outbox.write_durably(heartbeats.end_claims_of_gone, outbox.settings.request):
            log.info("%s of actuators that are gone can be taken over", counted(ended, "claim"))
            self.on_ended()


def _is_first_write(intent: ClaimedIntent) -> bool:
    return intent.attempts <= 1 and intent.verb not in ("call", "event")
