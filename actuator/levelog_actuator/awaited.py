"""Levels that daemons wait for: read together after a notification that one has changed, and at each resync.

It reads the table `levels`, and decides and writes nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from levelog.absence import level_of
from levelog.levels import LevelStatus
from levelog_actuator.outbox import Outbox
from levelog_base.errors import LevelogError
from levelog_log.notifications import Listener
from levelog_store.actuate.daemonstates import read_awaited
from levelog_store.rows import ViewParent

log = logging.getLogger(__name__)

REST: Final = 9
"""Pause after a read, in multiples of its duration: reading takes a tenth of the time (2,000 levels take 50 ms)."""


class AwaitedLevels:
    """The levels that the daemons of one process wait for."""

    def __init__(self, outbox: Outbox, listener: Listener) -> None:
        self._outbox = outbox
        self._listener = listener
        self._resync = outbox.settings.resync
        self._awaited: set[Awaited] = set()
        outbox.database.absence.on_end(listener.notify)

    @contextmanager
    def awaiting(self, place: ViewParent, uid: str, told: Callable[[], None]) -> Generator["Awaited"]:
        """Wait for a level of an object with this uid: `told` is called each time that it changes.

        It is read for the first time after that began, so that no change is missed.
        """
        awaited = Awaited(place, uid, told)
        self._awaited.add(awaited)
        self._listener.notify()
        try:
            yield awaited
        finally:
            self._awaited.discard(awaited)

    async def read(self, place: ViewParent, uid: str) -> LevelStatus | None:
        """Status of the level of an object with this uid; None: there is none. Raises Unavailable."""
        found = (await self._outbox.read(read_awaited, [place])).get(place)
        return found[1] if found is not None and found[0] == uid else None

    async def run(self) -> None:
        """Look at each notification, and at each resync, until cancelled; notifications that come meanwhile are one."""
        clock = asyncio.get_running_loop().time
        while True:
            await self._listener.wait(self._resync)
            began = clock()
            try:
                await self.look()
            except LevelogError as error:
                log.log(level_of(error), "levels that daemons wait for are read again at the next resync: %s", error)
            await asyncio.sleep(min(REST * (clock() - began), self._resync.total_seconds()))

    async def look(self) -> bool:
        """Read the awaited levels, and wake those whose level has changed; tells whether any has."""
        awaited = list(self._awaited)
        if not awaited:
            return False
        found = await self._outbox.read(read_awaited, sorted({each.place for each in awaited}))
        return sum(each.take(found.get(each.place)) for each in awaited) > 0


class Awaited(Struct, eq=False):
    """One wait for a level."""

    place: ViewParent
    uid: str
    told: Callable[[], None]
    level_status: LevelStatus | None = None
    version: int = 0
    """Counts the changes that were read; 0: it was not read yet."""

    def take(self, found: tuple[str, LevelStatus] | None) -> bool:
        """Store a reading; returns whether the level has changed."""
        before, self.level_status = self.level_status, found[1] if found is not None and found[0] == self.uid else None
        if self.version and _identity(before) == _identity(self.level_status):
            return False
        self.version += 1
        self.told()
        return True


def _identity(level_status: LevelStatus | None) -> object:
    return level_status.identity if level_status is not None else None
