"""A processor that is stepped: the real one's leases, engine and high-watermark, without its loop, its log and time.

One rule of the loop is kept here: records are read in the order of the log, from the checkpoints on.
"""

# pyright: reportPrivateUsage=false
import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast

from msgspec.structs import replace

from levelog.handlers.viewhandlers import ReconcileHandler
from levelog.intents import Intent
from levelog_base.wire.objects import Sequence as ReadTo
from levelog_base.wire.records import LoggedRecord
from levelog_log.notifications import Listener, Notifier, Topic
from levelog_log.reader import Reader
from levelog_log.stream import LogStream
from levelog_log.trail import Trail
from levelog_processors.announcements import Announcements, announce_anew
from levelog_processors.decide.functions import Caller
from levelog_processors.decide.tally import EvaluationBatch
from levelog_processors.engine import Engine
from levelog_processors.program import Program
from levelog_processors.state.state import State
from levelog_processors.tables import SqlTables
from levelog_processors.upkeep import start_over
from levelog_processors.waiting import HighWatermark
from levelog_store.owners.leases import Leases
from levelog_store.rows import Scope, ViewParent
from rigs.machine.log import PARTITIONS, Log
from rigs.machine.seam import SeamedDatabase
from rigs.machine.sender import SteppedSender

MIRRORED_AT: Final = 3
"""Only after records whose sequence this divides are objects written at once."""


class _Gate(Caller):
    """Calls reconcile functions, and holds back what they gave while it is closed: to everybody else they are slow."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.held: set[ViewParent] = set()
        """Levels whose functions are slow now."""
        self._opened = asyncio.Event()
        self._opened.set()

    @property
    def is_closed(self) -> bool:
        return not self._opened.is_set()

    def close_it(self) -> None:
        """Hold back what functions give from now on."""
        self._opened.clear()

    def open_it(self) -> None:
        """Let all functions return."""
        self._opened.set()

    async def call(self, level: ViewParent, handler: ReconcileHandler, arguments: Mapping[str, Any]) -> list[Intent]:
        """As Caller.call."""
        found = await super().call(level, handler, arguments)
        self.held.add(level)
        try:
            await self._opened.wait()
        finally:
            self.held.discard(level)
        return found


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
        self._scope = scope = replace(scope, owner=owner)
        self._log = log
        self._program = program
        self._database_clock = clock
        self.skew = timedelta(0)
        """How far the clock of its machine is ahead of the database's."""
        self.owner = owner
        self._leases = Leases(self._database, scope, owner=owner, duration=timedelta(days=1))  # a step ends them
        self._gate = _Gate()
        self._engine = Engine(
            SqlTables(self._database, scope), program, patience=None, caller=self._gate, most_bodies=0
        )
        self._notifier = cast("Notifier", self)
        self.on_told: Callable[[Topic], Awaitable[None]] | None = None
        """Hears of each notification, at once."""
        self._announcements = Announcements(self._engine, program, self._notifier, Listener(), None)
        self.epochs: dict[int, int] = {}
        """What it believes to hold."""
        self.position = 0
        self.beginnings = 0
        """As a reader counts them."""
        self.on_arrival: Callable[[], None] = lambda: None
        """As a reader has it."""
        self.has_to_reach = 0
        """Where the log ended when it began to read, or began anew."""
        self._high_watermark: HighWatermark
        self._trail: Trail

    @property
    def now(self) -> datetime:
        """The time by the clock of its machine, which nothing may depend on."""
        return self._database_clock() + self.skew

    async def tend(self) -> None:
        """Renew, take and give up leases; begin at the checkpoints if they are other ones than before."""
        await self._begin(await self._leases.tend())

    async def _begin(self, epochs: dict[int, int]) -> None:
        if epochs == self.epochs:
            return
        self.epochs = epochs
        await self.begin_at_checkpoints()

    async def begin_at_checkpoints(self) -> None:
        """Forget what was folded, and go on from what the tables hold."""
        await self._engine.load(self.epochs)
        self._announcements.begin()
        await announce_anew(self._notifier)
        self.position = min(self._engine.state.folded_to.values(), default=0)
        self._trail = Trail(cast("LogStream", self._log), ReadTo(self.position), newest=self._engine.newest)
        self._high_watermark = HighWatermark(cast("Reader", self), lambda: 0.0)
        await self.begin_anew()

    async def publish(self, topic: Topic, **_: Any) -> None:
        """As a notifier has it."""
        if self.on_told is not None:
            await self.on_told(topic)

    async def begin_anew(self) -> None:
        """Read on with another connection, after the one before was lost."""
        self.beginnings += 1
        self.has_to_reach = await self._log.last_sequence()
        if self.epochs:
            await self._high_watermark.look(0)

    @property
    def seen_to(self) -> int:
        """As a reader has it."""
        return self.position if self.unread() else len(self._log.records)

    async def find_end(self) -> int:
        """As a reader has it, which looks for holes too: here the next fold does."""
        return len(self._log.records)

    def _check(self, *, is_reading: bool) -> None:
        self._trail.check(self._log.first, len(self._log.records), read_to=ReadTo(self.seen_to), is_reading=is_reading)

    async def confirm(self) -> int:
        """As a reader has it."""
        return self.seen_to

    async def may_decide(self) -> bool:
        """Tell whether history is folded."""
        return bool(self.epochs) and await self._high_watermark.is_reached(has_records=False)

    def unread(self) -> list[LoggedRecord]:
        """Records that it has not read, if it holds anything."""
        return self._log.of(range(PARTITIONS), after=self.position) if self.epochs else []

    async def fold(self, most: int, meanwhile: Callable[[], Awaitable[None]] | None = None) -> Sequence[LoggedRecord]:
        """Fold the next records; returns those of its partitions. Raises LeaseLost, CommitsLost, HistoryLost."""
        records = self.unread()[:most]
        if not records:
            if self.epochs:
                await self._engine.notice()  # which the loop does when it has nothing else to do
                if self._engine.has_unwritten:
                    await self._engine.flush()
                    await self._announcements.publish()
            return []
        self._check(is_reading=True)
        for logged in records:
            if not self._trail.take(logged.sequence, logged.record_id):
                self._check(is_reading=False)
                raise AssertionError(f"no hole before {logged.sequence}")
        folded_to, decided_to = self._engine.state.folded_to, self._engine.decided_to
        known = {each: max(folded_to[each], decided_to[each]) for each in self.epochs}
        fresh = [r for r in records if r.partition in self.epochs and r.sequence > known[r.partition]]
        self._database.meanwhile = meanwhile
        try:
            folded = self._engine.fold(records)
            self._announcements.fold(folded)
            await self._announcements.publish()  # of what is written already
            is_time = self._program.follows(folded.keys) or records[-1].sequence % MIRRORED_AT == 0
            await self._engine.flush(has_time=is_time)
            await self._announcements.publish()
        finally:
            self._database.meanwhile = None
        self.position = records[-1].sequence
        self._check(is_reading=True)
        await self._high_watermark.look(len(records))
        return fresh

    async def decide(
        self,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
        *,
        is_slow: bool = False,
        sender: SteppedSender | None = None,
    ) -> EvaluationBatch:
        """Decide on what is due; with `is_slow` reconcile functions that begin now return in `release`.

        What is decided is claimed for the `sender`. Raises LeaseLost, CommitsLost.
        """
        if is_slow:
            self._gate.close_it()
        acting = self._engine.acting
        acting.patience = timedelta(0) if self._gate.is_closed else None
        self._engine.claimant = sender.beside(self._database) if sender is not None else None
        self._database.meanwhile = meanwhile
        try:
            await self._engine.notice()
            batch = await self._engine.decide(now=self._database_clock())
            self._announcements.decide(batch)
            await self._announcements.publish()
        finally:
            self._database.meanwhile = None
            begun = acting._begun.items()
            while any(level not in self._gate.held and not each.task.done() for level, each in begun):  # noqa: ASYNC110 - called in the loop's next rounds
                await asyncio.sleep(0)
        return batch

    @property
    def slow(self) -> Collection[ViewParent]:
        """Levels whose functions have not returned."""
        return self._gate.held

    async def release(self) -> None:
        """Let slow functions return; the next batch takes what they gave."""
        self._gate.open_it()
        if begun := self._engine.acting._begun.values():
            await asyncio.wait([each.task for each in begun])

    async def start_over(self, reason: str) -> Scope:
        """Empty the tables, as the log does not go on from them. Raises LeaseLost."""
        return await start_over(self._database, self._scope, self.epochs, reason=reason)

    async def close(self) -> None:
        """End what runs, as if killed."""
        await self._engine.close()

    @property
    def has_missed(self) -> bool:
        """Whether it has not looked yet what it missed: before it took its partitions, or of levels of others."""
        return self._engine._has_missed or self._engine._has_new_lookups

    @property
    def state(self) -> State:
        """What its engine holds."""
        return self._engine.state

    @property
    def folded_to(self) -> Mapping[int, int]:
        """How far it has folded each partition, its own or not."""
        return self._engine.state.folded_to

    def forget_leases(self) -> None:
        """Believe to hold nothing, as after LeaseLost."""
        self.epochs = {}
