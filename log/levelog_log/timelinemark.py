"""Compares the timelines of PostgreSQL that the processes of an application work on, beside its leases in NATS."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, TypeAlias

from msgspec import Struct

from levelog_base.errors import LevelogError
from levelog_base.wire.objects import Application
from levelog_base.wire.timelines import DatabaseTimeline
from levelog_log.leases import LeaseMessage, NoLeases
from levelog_log.stream import LogStream

log = logging.getLogger(__name__)

Known: TypeAlias = Callable[[], DatabaseTimeline | None]
"""The timeline that this process works on now; None: there is none, or nobody can tell."""
Require: TypeAlias = Callable[[DatabaseTimeline, str], None]
"""Has this process work on the timeline of another one, which is named."""

TASK: Final = "database"
LOOK: Final = timedelta(seconds=3)
"""How often each process looks, and so how long one may go on with an older timeline."""


class MarkedTimeline(Struct, frozen=True, kw_only=True):
    """The timeline that a process works on."""

    system: str
    number: int
    holder: str

    @property
    def timeline(self) -> DatabaseTimeline:
        """Without the process."""
        return DatabaseTimeline(self.system, self.number)


class TimelineMark:
    """The mark of an application, as one process sees it; NATS forgets it unless a process renews it within a lease."""

    def __init__(self, stream: LogStream, application: Application, *, holder: str) -> None:
        self._message = LeaseMessage(stream, application, TASK, MarkedTimeline)
        self._holder = holder
        self._seen = 0
        """Sequence of what was read last."""

    async def agree(self, mine: DatabaseTimeline) -> MarkedTimeline | None:
        """Mark this process's timeline; returns the mark of another one whose timeline this one may not follow.

        Raises Unavailable, LevelogError.
        """
        try:
            marked, sequence = await self._message.read()
            if marked is not None and marked.timeline != mine and not mine.may_follow(marked.timeline):
                return marked
            if marked is not None and marked.timeline == mine and sequence != self._seen:
                self._seen = sequence  # another renews it
            else:  # of two at a time, one looks again
                wanted = MarkedTimeline(system=mine.system, number=mine.number, holder=self._holder)
                await self._message.replace(wanted, sequence)
        except NoLeases:  # which ingest makes
            log.debug("the timeline of the database is not marked: there are no leases yet")
        return None

    @asynccontextmanager
    async def kept(self, timeline: Known, require: Require) -> AsyncGenerator[None]:
        """Compare before the block and while it lasts; `require` gets another process's timeline once it shows."""
        await self._look(timeline, require)
        keeping = asyncio.create_task(self._keep(timeline, require), name="timeline of the database")
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _keep(self, timeline: Known, require: Require) -> None:
        while True:
            await asyncio.sleep(LOOK.total_seconds())
            await self._look(timeline, require)

    async def _look(self, timeline: Known, require: Require) -> None:
        """Compare once; raises nothing, since NATS may be away."""
        if (mine := timeline()) is None:
            return
        try:
            other = await self.agree(mine)
        except LevelogError as error:
            log.debug("the timeline of the database is not compared: %s", error)
            return
        if other is not None:
            require(other.timeline, f"process {other.holder}")
