"""A processor that is stepped: the real one's fold, readiness, lag and decisions, without its loop, its log and time.

The loop's own rules are kept here: records in the order of the log from the checkpoints on, and nothing decided before
the log is folded up to its end as of the take-over.
"""

# pyright: reportPrivateUsage=false
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import cast

from levelog.wire.objects import Sequence as LogSequence
from levelog.wire.records import LoggedRecord
from levelog_log.hints import Hints, Topic
from levelog_log.stream import LogStream
from levelog_processors.decide.cut import Cut, Decider
from levelog_processors.fold.backfilling import Backfiller, Pace
from levelog_processors.processor import Processor
from levelog_processors.program import Program
from levelog_processors.waiting import Agenda
from levelog_store.decide import inputreads as stored
from levelog_store.decide.decisions import PendingWake
from levelog_store.rows import Scope
from rigs.machine.log import Log
from rigs.machine.seam import SeamedDatabase


class _NoHints:
    async def publish(self, topic: Topic) -> None:
        """Tell nobody."""


class _ClockedDecider(Decider):
    """Takes what is due at the machine's time, and keeps what came of the last cut."""

    last_cut: Cut | None = None

    async def cut(
        self,
        epochs: Mapping[int, int],
        partitions: Collection[int],
        views: Collection[str],
        is_lagging: Callable[[PendingWake], Awaitable[bool]],
        *,
        now: datetime | None = None,
    ) -> Cut:
        """As Decider.cut, at the machine's time."""
        self.last_cut = await super().cut(epochs, partitions, views, is_lagging, now=now or self._clock())
        return self.last_cut


class Worker:
    """One processor of the application, from its start to its end."""

    def __init__(
        self,
        database: SeamedDatabase,
        scope: Scope,
        program: Program,
        log: Log,
        owner: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database.beside()
        self._scope = scope
        self._log = log
        self.owner = owner
        self._processor = Processor(
            self._database,
            scope,
            program,
            cast("LogStream", log),
            cast("Hints", _NoHints()),
            owner=owner,
            clock=clock,
        )
        self._decider = _ClockedDecider(self._database, scope, program, clock, patience=None)
        self._processor.decider = self._decider
        self.epochs: dict[int, int] = {}
        """What it believes to hold."""
        self._folded_to: dict[int, int] = {}
        self._position = 0
        self._has_to_reach = 0

    async def tend(self) -> None:
        """Renew, take and give up leases; begin at the checkpoints if they are other ones than before."""
        await self._begin(await self._processor._leases.tend())

    async def _begin(self, epochs: dict[int, int]) -> None:
        if epochs == self.epochs:
            return
        self.epochs = epochs
        async with self._database.reading() as connection:
            checkpoints = await stored.read_checkpoints(connection, self._scope)
        self._folded_to = {partition: checkpoints[partition] for partition in epochs}
        self._position = min(self._folded_to.values(), default=0)
        self._has_to_reach = await self._log.last_sequence()

    @property
    def is_caught_up(self) -> bool:
        """Tell whether history is folded, so that it may decide."""
        return bool(self.epochs) and not [r for r in self.unread() if r.sequence <= self._has_to_reach]

    def unread(self) -> list[LoggedRecord]:
        """Records of its partitions that it has not read."""
        return self._log.of(self.epochs, after=self._position)

    async def fold(self, most: int, meanwhile: Callable[[], Awaitable[None]] | None = None) -> Sequence[LoggedRecord]:
        """Fold the next records; returns those that were. Raises LeaseLost."""
        records = self.unread()[:most]
        if not records:
            return []
        fresh = [r for r in records if r.sequence > self._folded_to[r.partition]]
        self._database.meanwhile = meanwhile
        try:
            await self._processor._fold(records, self.epochs, self._folded_to, Agenda())
        finally:
            self._database.meanwhile = None
        self._position = records[-1].sequence
        return fresh

    async def decide(self, meanwhile: Callable[[], Awaitable[None]] | None = None) -> Cut | None:
        """Decide on what is due. Raises LeaseLost."""
        self._decider.last_cut = None
        self._database.meanwhile = meanwhile
        try:
            await self._processor._decide(self.epochs, Agenda(), self._backfiller(), LogSequence(self._position))
        finally:
            self._database.meanwhile = None
        return self._decider.last_cut

    def _backfiller(self) -> Backfiller:
        """One that has nothing to do, since the code never changes."""
        return Backfiller(self._database, self._scope, self._processor.program, self.epochs, Pace(1, lambda: 0.0))

    def forget_leases(self) -> None:
        """Believe to hold nothing, as after LeaseLost."""
        self.epochs = {}
