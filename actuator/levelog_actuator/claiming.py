"""When intents are claimed: after a notification, when one is due, and at each resync.

`actuator.py` says what is claimed, and begins it. Here the database is asked when the next one is due, and its times
are put right if its clock was set back.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from levelog.absence import level_of
from levelog_actuator.outbox import Outbox
from levelog_base.errors import Unavailable
from levelog_log.notifications import Listener
from levelog_store.actuate import claims
from levelog_store.actuate.setbacks import plan_anew

log = logging.getLogger(__name__)

SPARED: Final = 3
"""Times as long as a claim took that passed by calls: so long the database is spared, and has three quarters of the
time for others."""
MOST_SPARED_SECONDS: Final = 0.5


class ClaimLoop(Struct, eq=False):
    """Claims intents of one kind in a loop."""

    outbox: Outbox
    listener: Listener
    until_ready: Callable[[], Awaitable[None]]
    """Waits until something may be claimed."""
    claim: Callable[[], Awaitable[tuple[bool, float]]]
    """Claims and starts intents; may raise Unavailable. Returns whether no more are due, and for how many seconds it
    read calls that have to wait: ten thousand take SQLite 30 ms, PostgreSQL 10 ms."""
    due_at: float | None = None
    claimed_at: float = math.inf
    """When intents were claimed last, by the event loop's clock; infinite while that is not known."""
    asked_at: datetime = datetime.max.replace(tzinfo=UTC)
    """The database's time when it was last asked for what is due; at first others may have put off by a wrong one."""

    async def run(self) -> None:
        """Claim until cancelled."""
        clock, failures, spares_until = asyncio.get_running_loop().time, 0, -math.inf
        while True:
            await asyncio.sleep(max(0.0, spares_until - clock()))
            await self.until_ready()
            try:
                self.claimed_at = math.inf
                is_done, took = await self.claim()
                self.claimed_at = clock()
                spares_until = self.claimed_at + min(SPARED * took, MOST_SPARED_SECONDS)
                if is_done:
                    await self._rest()
                failures = 0
            except Unavailable as error:
                failures, self.due_at = failures + 1, None
                delay = self.outbox.settings.outage_delay(failures)
                log.log(level_of(error), "no intents are claimed for %.1f s: %s", delay.total_seconds(), error)
                await self.listener.wait(delay)

    def expect(self, delay: timedelta) -> None:
        """Look when an intent is due that was given back for so long."""
        if self.due_at is not None:
            self.due_at = min(self.due_at, asyncio.get_running_loop().time() + delay.total_seconds())

    async def _rest(self) -> None:
        """Wait for a notification, for the next intent that is due, or for the next resync."""
        clock = asyncio.get_running_loop().time
        resync = self.outbox.settings.resync.total_seconds()
        if self.due_at is None:
            self.due_at = clock() + resync  # sooner by what is given back while the database is asked
            if (wait := await self._next_due()) is not None:
                self.due_at = min(self.due_at, clock() + wait.total_seconds())
        if not await self.listener.wait(timedelta(seconds=max(0.0, self.due_at - clock()))):
            self.due_at = None

    async def _next_due(self) -> timedelta | None:
        """How long until the next intent is due, once it does not wait for a clock that was set back."""
        while True:
            wait, at = await self.outbox.read(claims.next_due)
            before, self.asked_at = self.asked_at, at
            if at >= before:
                return wait
            lease, heartbeat = self.outbox.settings.lease, self.outbox.settings.heartbeat_timeout
            await self.outbox.write_durably(plan_anew, lease=lease, heartbeat=heartbeat)
