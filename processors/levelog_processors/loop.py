"""Steps the engine through the log: each turn reads records, folds them, decides on a batch of levels, and writes.

It reads the log, writes the tables through the engine, and publishes notifications. Timers and record handlers run in
other tasks: it tells them which calls somebody asks for, and the timers how far the log is read. It says when a step is
due, and nothing of what a step decides: users' functions, intents and receipts are the engine's. It never reaches the
API server.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from time import monotonic
from typing import Final

from levelog.absence import level_of
from levelog_base.counting import counted
from levelog_base.errors import LevelogError, Unavailable
from levelog_base.wire.objects import Sequence
from levelog_base.wire.records import LoggedRecord
from levelog_log.notifications import Notifier, Topic
from levelog_log.reader import Reader
from levelog_log.stream import LogStream
from levelog_processors.announcements import Announcements
from levelog_processors.deliver.feed import RecordFeed
from levelog_processors.deliver.timers import Timers
from levelog_processors.engine import Engine
from levelog_processors.health import LoopHealth
from levelog_processors.program import Program
from levelog_processors.upkeep import PRUNE_EVERY, Statistics
from levelog_processors.waiting import FOLD_BATCH, RESYNC, HighWatermark, Pace, Portion, Schedule
from levelog_store.rows import IndexKey

log = logging.getLogger(__name__)

HELD_UP_PAUSE: Final = timedelta(milliseconds=200)
"""How long a wakeup waits that is due and cannot be decided yet, since a function still runs or a view is not ready."""
WRITES_AFTER: Final = timedelta(seconds=1)
"""How long what is folded stays out of the tables."""
MOST_UNWRITTEN: Final = 10_000
"""Objects and entries that are written before that time is over."""
CONFIRM_EVERY: Final = 1000
"""Records after which the checkpoints of partitions without records are moved, so that a restart reads little."""


class Loop:
    """Steps an engine through the log: a task calls `run`, under one set of leases after another, one `find_first`."""

    def __init__(
        self,
        engine: Engine,
        program: Program,
        stream: LogStream,
        notifier: Notifier,
        feed: RecordFeed,
        timers: Timers,
        statistics: Statistics,
        *,
        on_keys: Callable[[Collection[IndexKey]], None] | None = None,
        writes_after: timedelta = WRITES_AFTER,
    ) -> None:
        """As in `Processor`."""
        self._engine = engine
        self._program = program
        self._stream = stream
        self._notifier = notifier
        self._listener = notifier.listen(Topic.WAKE)
        engine.acting.on_return = self._listener.notify
        self._feed = feed
        self._timers = timers
        self._statistics = statistics
        self._announcements = Announcements(engine, program, notifier, self._listener, on_keys)
        self._writes_after = writes_after
        self.health = LoopHealth()
        self.records = 0
        """Records folded."""
        self._schedule = Schedule(monotonic)
        self._portion = Portion()
        self._log_begins_at: int | None = None
        """Where the log begins, for as long as what is older is not forgotten."""
        self._writes_at = 0.0
        """When what is folded is written; 0: all is."""

    async def run(self, epochs: Mapping[int, int]) -> None:
        """Work under these leases until cancelled. Raises LeaseLost, CommitsLost, Unavailable and HistoryLost."""
        engine = self._engine
        self.health.take_up()
        await engine.load(epochs)
        self._announcements.begin()
        if self._timers.is_needed:
            await self._timers.hold(epochs)
        start = Sequence(min(engine.state.folded_to.values()) + 1)
        self._schedule = Schedule(monotonic, is_alone=engine.claimant is not None and not engine.is_shared)
        reading = Reader(self._stream, start=start, newest=engine.newest, report=self._notifier.report)
        async with reading as reader, HighWatermark(reader, monotonic) as high_watermark:
            reader.on_arrival = self._listener.nudge
            pace = Pace(monotonic)
            self.health.begin(reader)
            try:
                while True:
                    records = await reader.next_batch(FOLD_BATCH, timedelta(0))
                    seen_to = reader.seen_to  # every record up to here was handed out; more may come meanwhile
                    if reader.has_arrived:  # more than one batch takes
                        self._listener.nudge()
                    pace.begin()
                    self.health.turn(records)
                    await high_watermark.look(len(records))
                    is_reached = await high_watermark.is_reached(has_records=bool(records))
                    if records:
                        await self._fold(records)
                    if is_reached:
                        self.health.catching_up.reach()
                        self._timers.open()
                        self.health.is_behind = False
                        is_busy = await self._take_turn(seen_to)
                        wait = min(self._schedule.wait, self._write_wait)
                    else:
                        first = records[0].sequence if records else start
                        self.health.catching_up.go_on(first - 1, seen_to, high_watermark.end)
                        if len(engine.state.unwritten) >= MOST_UNWRITTEN:
                            await engine.flush()
                        is_busy, wait = bool(records), high_watermark.wait
                    await self._announcements.publish()
                    pace.end()
                    if is_busy:
                        continue
                    self.health.rest()
                    if (left := pace.left) > 0:
                        await asyncio.sleep(left)
                    if await self._listener.wait(wait):
                        self._schedule.notified()
            except asyncio.CancelledError:
                await self._write_last()
                raise
            finally:
                self.health.catching_up.reach()

    async def _take_turn(self, read_to: Sequence) -> bool:
        """Take what others ask for, decide on one batch and write, each if it is time; tells whether there is more."""
        schedule = self._schedule
        if schedule.is_overdue:
            asked = await self._engine.notice()
            self._feed.delivery.hasten(asked)
            self._timers.hasten(asked)
            await self._forget()
            schedule.resynced()
        is_busy = schedule.is_open and await self._decide()
        await self._write(read_to, ends=not schedule.is_resting)
        return is_busy

    async def _forget(self) -> None:
        """Forget, at intervals, what is handled and what is older than the log as it is now."""
        first, self._log_begins_at = self._log_begins_at, None
        if first is not None and (count := await self._engine.forget(before=first)):
            log.info("forgot %s: nothing is left to be handled", counted(count, "deleted object"))

    async def find_first(self) -> None:
        """Ask at intervals where the log begins; the loop does not wait for the answer."""
        while True:
            try:
                self._log_begins_at = (await self._stream.state()).first_seq
            except Unavailable as error:
                log.log(level_of(error), "what is handled is kept for now: %s", error)
            await asyncio.sleep(PRUNE_EVERY.total_seconds())

    def _plan(self) -> None:
        due_at, now = self._engine.state.wakes.next_due, self._engine.clock.now()
        if due_at is not None and due_at <= now:  # a level that is held up: look again, not at once
            due_at = now + HELD_UP_PAUSE
        self._schedule.plan(due_at, now)

    async def _fold(self, records: list[LoggedRecord]) -> None:
        began = self.health.clock()
        folded = self._engine.fold(records)
        self.health.note(began, folded=folded)
        self._schedule.take(folded.wakes)
        # a wakeup may have waited for these records
        if folded.has_finished_sync:
            self._schedule.open()
        if not folded.records:
            return
        self.records += folded.records
        self._announcements.fold(folded)
        if self._program.follows(folded.keys):
            await self._engine.flush()
            await self._announcements.publish()
        if self._timers.is_needed:
            self._timers.see(records)
        log.debug("folded %s", counted(folded.records, "record"), extra={"sequence": records[-1].sequence})

    async def _write(self, read_to: Sequence, *, ends: bool) -> None:
        """Write what is folded, if it is time, and how far there was nothing to fold.

        With `ends`, write at once the intents that records have ended.
        """
        engine, now = self._engine, monotonic()
        is_unconfirmed = read_to - min(map(engine.state.folded_to.__getitem__, engine.epochs)) >= CONFIRM_EVERY
        if not (engine.has_unwritten or is_unconfirmed):
            self._writes_at = 0.0
            return
        if not self._writes_at:
            self._writes_at = now + self._writes_after.total_seconds()
        is_much = len(engine.state.unwritten) >= MOST_UNWRITTEN
        if is_unconfirmed or is_much or now >= self._writes_at:
            await engine.flush(read_to=read_to if is_unconfirmed else 0)
            self._writes_at = 0.0
        elif ends and engine.state.ends:
            await engine.flush(has_time=False)

    async def _write_last(self) -> None:
        """Write what is folded, as far as that can be done at the end."""
        try:
            if self._engine.tables.is_whole and self._engine.has_unwritten:
                await self._engine.flush()
            await self._announcements.publish()
        except LevelogError as error:
            log.info("what was folded last is folded again by the next processor: %s", error)

    @property
    def _write_wait(self) -> timedelta:
        """Time until what is folded is written."""
        if not self._writes_at:
            return RESYNC
        return timedelta(seconds=max(0.0, self._writes_at - monotonic()))

    async def _decide(self) -> bool:
        """Decide on one batch of levels; tells whether there may be more right now."""
        self._schedule.close()
        began, most = self.health.clock(), self._portion.begin()
        batch = await self._engine.decide(leaving=self._schedule.put_off, most=most)
        self._portion.end(batch)
        self.health.note(began, batch=batch)
        self._announcements.decide(batch)
        await self._announcements.publish()
        self._schedule.note(batch)
        if batch.has_more:
            self._schedule.open()
        self._plan()
        if batch.decided:
            newest = max(decided.level.cause for decided in batch.decided)
            log.debug("decided on %s", counted(len(batch.decided), "level"), extra={"sequence": newest})
        await self._statistics.keep(len(batch.decided))
        return self._schedule.is_open
