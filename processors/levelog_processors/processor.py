"""One processor: leases partitions, reads their records in order, folds them, and decides at each batch."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from time import monotonic
from typing import Final

from msgspec.structs import replace

from levelog.absence import level_of
from levelog.calls.caller import THREADS
from levelog.calls.executor import CallOutcome
from levelog_base.counting import counted
from levelog_base.errors import HistoryLost, LeaseLost, LevelogError, Unavailable
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Sequence
from levelog_base.wire.records import LoggedRecord
from levelog_log.notifications import Notifier, Topic
from levelog_log.reader import Reader
from levelog_log.stream import LogStream
from levelog_processors.decide.functions import MOST_BEGUN, Caller
from levelog_processors.decide.portions import Portion
from levelog_processors.decide.tally import CallCounts, EvaluationBatch
from levelog_processors.deliver.feed import RecordFeed
from levelog_processors.deliver.timers import Timers
from levelog_processors.engine import Engine
from levelog_processors.fold.batches import Folded
from levelog_processors.health import LoopHealth
from levelog_processors.program import Program
from levelog_processors.progress import CatchingUp, WorkProgress
from levelog_processors.tables import SqlTables
from levelog_processors.upkeep import PARTITION, PRUNE_EVERY, Pruner, Statistics, start_over
from levelog_processors.waiting import RESYNC, Arrivals, HighWatermark, Pace, Schedule
from levelog_store.actuate.claims import Claimant
from levelog_store.connect.database import Database
from levelog_store.look.overview import Workload, count_work
from levelog_store.owners.leases import LOOK_EVERY, Leases
from levelog_store.rows import IndexKey, Scope

log = logging.getLogger(__name__)

RETRY_PAUSE: Final = timedelta(seconds=1)
HELD_UP_PAUSE: Final = timedelta(milliseconds=200)
"""How long a wakeup waits that is due and cannot be decided yet, since a function still runs or a view is not ready."""
WRITES_AFTER: Final = timedelta(seconds=1)
"""How long what is folded stays out of the tables."""
MOST_UNWRITTEN: Final = 10_000
"""Objects and entries that are written before that time is over."""
CONFIRM_EVERY: Final = 1000
"""Records after which the checkpoints of partitions without records are moved, so that a restart reads little."""


class Processor:
    """Folds the log, and decides for the partitions that it leases; any number may run, on PostgreSQL.

    What it holds in memory is in the tables too, or follows from the log: if it is killed, another one continues.
    `on_keys` is called with the keys of indices that a fold has changed, once they are in the tables.
    """

    def __init__(
        self,
        database: Database,
        scope: Scope,
        program: Program,
        stream: LogStream,
        notifier: Notifier,
        *,
        owner: str,
        threads: int = THREADS,
        on_keys: Callable[[Collection[IndexKey]], None] | None = None,
        redactor: Redactor | None = None,
        claimant: Claimant | None = None,
        events_from: int | None = None,
        writes_after: timedelta = WRITES_AFTER,
        is_dry: bool = False,
    ) -> None:
        """`threads`: how many reconcile functions that are not async run at one time.

        `redactor`: that of what is recorded. `claimant`: the actuator of this process, if it has one. `events_from`:
        sequence after which record handlers begin that are new; None: where the tables are. `writes_after`: how long
        what is folded stays out of the tables.
        `is_dry`: record handlers, and timers without records, are not called; new ones begin all the same.
        """
        self._database = database
        self._scope = scope = replace(scope, owner=owner)
        self.program = program
        self._stream = stream
        self._notifier = notifier
        self._owner = owner
        self._on_keys = on_keys
        self._leases = Leases(database, scope, owner=owner)
        self._threads = threads
        caller = Caller(threads=threads)
        self._engine = Engine(SqlTables(database, scope), program, redactor=redactor, caller=caller, claimant=claimant)
        self._statistics = Statistics(database)
        self._feed = RecordFeed(database, scope, program, stream)
        self._timers = Timers(database, scope, program, self._engine.whole)
        self._events_from = events_from
        self._writes_after = writes_after
        self._is_dry = is_dry
        self._listener = notifier.listen(Topic.WAKE)
        self._leases_listener = notifier.listen(Topic.LEASES)
        self._engine.acting.on_return = self._listener.notify
        self.health = LoopHealth()
        self._catching_up = CatchingUp(monotonic)
        self._portion = Portion()
        self.records = 0
        """Records folded."""
        self._owned = 0
        """Partitions that the log was last told of."""
        self._unheard = set[IndexKey]()
        """Keys that have changed and that nobody was told of."""
        self._has_freed = False
        """Intents may wait for targets that are free once what is folded is in the tables."""
        self._first: int | None = None
        """Where the log begins, for as long as what is older is not forgotten."""
        self._writes_at = 0.0
        """When what is folded is written, by the loop's clock; 0: all is."""

    @property
    def index_failures(self) -> Mapping[str, int]:
        """How many objects index functions fail for, by index; others are not there."""
        return self._engine.state.buckets.failures()

    @property
    def calls(self) -> CallCounts:
        """How often user functions were called."""
        return self._engine.calls

    def trouble(self) -> str:
        """Why it may not decide, or does not; empty: it does, or stands by while others hold all partitions."""
        if self._leases.share is None:
            return "has no lease yet"
        if monotonic() > self._leases.end_at:
            return "its leases are not renewed"
        if not self._leases.share:
            return ""
        return self.health.trouble() if self._engine.epochs else f"waits for {self._leases.share} partitions of others"

    @property
    def progress(self) -> list[WorkProgress]:
        """How far it is with what holds decisions up for long; empty: with nothing of the kind."""
        catching_up = self._catching_up.progress
        return [catching_up] if catching_up is not None else []

    @property
    def under_way(self) -> list[tuple[str, float]]:
        """Reconcile functions that have not returned: the view of each, and seconds since it was called."""
        return self._engine.acting.ages

    @property
    def most_at_once(self) -> Mapping[str, int]:
        """How many calls there may be at one time of the reconcile function of each view that has one.

        Functions that are not async share their threads.
        """
        reconciled = ((view.name, view.reconcile) for view in self.program.views.values() if view.reconcile is not None)
        return {name: MOST_BEGUN if function.is_async else self._threads for name, function in reconciled}

    def count_by(self, on_call: Callable[[str, CallOutcome], None], on_expired: Callable[[str], None]) -> None:
        """Tell of each such call that ends, and each time that records have expired before, by handler."""
        self._feed.delivery.on_call = self._timers.on_call = on_call
        self._feed.delivery.on_expired = on_expired

    async def workload(self) -> list[Workload]:
        """Levels and wakeups of the partitions that it holds, counted."""
        async with self._database.reading() as connection:
            return await count_work(connection, self._scope, self._engine.epochs)

    async def run(self) -> None:
        """Run until cancelled; the leases are released at the end.

        Raises IdentityMismatch if the tables were folded from another log. Raises HistoryLost if the log has a hole or
        was rolled back; the tables are then empty, and the next start folds what is left.
        """
        if not self._database.is_shared:
            await self._leases.end_others()
        try:
            while True:
                try:
                    epochs = await self._tended()
                    if epochs:
                        await self._run_with(epochs)
                    elif not await self._leases_listener.wait(min(self._leases.interval, LOOK_EVERY)):
                        await self._look_at_others()
                except Unavailable as error:
                    log.log(level_of(error), "begins again in %s: %s", RETRY_PAUSE, error, extra={"owner": self._owner})
                    await asyncio.sleep(RETRY_PAUSE.total_seconds())
        finally:
            await self._feed.delivery.close()
            await self._timers.close()
            await self._engine.close()
            await self._release()

    async def _release(self) -> None:
        try:
            await self._leases.release()
            await self._notifier.publish(Topic.LEASES, but_not=self._leases_listener)
        except Unavailable as error:
            log.warning("the leases of %s are not released and have to expire: %s", self._owner, error)

    async def _run_with(self, epochs: Mapping[int, int]) -> None:
        """Process the leased partitions until the leases change."""
        level = logging.DEBUG if self._owned == len(epochs) else logging.INFO
        self._owned, partitions = len(epochs), counted(self._scope.partitions, "partition")
        log.log(level, "owns %d of %s", len(epochs), partitions, extra={"owner": self._owner})
        # who had these partitions, or took them away, may have changed levels, or freed targets, and told nobody: it
        # was killed, promoted other code or emptied the tables; that code may have had daemons that wait for views
        for topic in (Topic.LEVELS, Topic.INTENT):
            await self._notifier.publish(topic)
        if self._feed.delivery.is_needed:
            await self._feed.delivery.hold(epochs, start=self._events_from)
        work = {
            "leases": self._tend(epochs),
            "processor": self._work(epochs),
            "log's beginning": self._find_first(),
        }
        if (
            self._database.is_shared and len(epochs) < self._scope.partitions
        ):  # others hold something that they may leave
            work["others"] = self._watch_others()
        if PARTITION in epochs:
            work["pruning"] = Pruner(self._database, self._scope, self._stream, epochs[PARTITION]).run()
        if self._feed.delivery.is_needed and not self._is_dry:
            work["record handlers"] = self._feed.run(epochs)
        if self._timers.is_needed and not self._is_dry:
            work["timers"] = self._timers.run()
        tasks = [asyncio.create_task(each, name=name) for name, each in work.items()]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, LeaseLost):
                log.warning("%s; its work was rolled back", result, extra={"owner": self._owner})
            elif isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result

    async def _tend(self, epochs: Mapping[int, int]) -> None:
        """Keep the leases; return when they are other ones than `epochs`."""
        while True:
            await self._leases_listener.wait(self._leases.interval)
            if await self._tended() != epochs:
                return

    async def _watch_others(self) -> None:
        """Look whether other processors were killed, and have their partitions taken."""
        while True:
            await self._look_at_others()
            await asyncio.sleep(LOOK_EVERY.total_seconds())

    async def _look_at_others(self) -> None:
        try:
            if await self._leases.free_gone():
                await self._notifier.publish(Topic.LEASES)  # this processor hears it, too
        except Unavailable as error:
            log.debug("whether others are gone is not known: %s", error)

    async def _tended(self) -> dict[int, int]:
        """Renew the leases and notify affected processors; returns the epochs of the leased partitions."""
        epochs = await self._leases.tend()
        if self._leases.concern_others:
            await self._notifier.publish(Topic.LEASES, but_not=self._leases_listener)
        return epochs

    async def _work(self, epochs: Mapping[int, int]) -> None:
        engine = self._engine
        self.health.take_up()
        await engine.load(epochs)
        if self._timers.is_needed:
            await self._timers.hold(epochs)
        start = Sequence(min(engine.folded_to.values()) + 1)
        clock = asyncio.get_running_loop().time
        schedule = Schedule(clock, is_alone=engine.claimant is not None and not engine.is_shared)
        reading = Reader(self._stream, start=start, newest=engine.newest, report=self._notifier.report)
        async with reading as reader, HighWatermark(reader, clock) as high_watermark:
            arrivals, pace = Arrivals(reader, self._listener), Pace(clock)
            self.health.begin(reader)
            try:
                while True:
                    records = await arrivals.records()
                    pace.begin()
                    self.health.turn(records)
                    await high_watermark.look(len(records))
                    is_reached = await high_watermark.is_reached(has_records=bool(records))
                    if records:
                        await self._fold(records, schedule)
                    if is_reached:
                        self._catching_up.reach()
                        self._timers.open()
                        self.health.is_behind = False
                        is_busy = await self._take_turn(schedule, arrivals.seen_to)
                        wait = min(schedule.wait, self._write_wait)
                    else:
                        first = records[0].sequence if records else start
                        self._catching_up.go_on(first - 1, arrivals.seen_to, high_watermark.end)
                        if len(engine.state.unwritten) >= MOST_UNWRITTEN:
                            await engine.flush()
                        is_busy, wait = bool(records), high_watermark.wait
                    pace.end()
                    if is_busy:
                        continue
                    self.health.rest()
                    if (left := pace.left) > 0:
                        await asyncio.sleep(left)
                    if await arrivals.wait(wait):
                        schedule.notified()
            except HistoryLost as lost:
                await start_over(self._database, self._scope, epochs, reason=str(lost))
                raise
            except asyncio.CancelledError:
                await self._write_last()
                raise
            finally:
                self._catching_up.reach()

    async def _take_turn(self, schedule: Schedule, read_to: Sequence) -> bool:
        """Take what others ask for, decide on one batch and write, each if it is time; tells whether there is more."""
        if schedule.is_overdue:
            asked = await self._engine.notice()
            self._feed.delivery.hasten(asked)
            self._timers.hasten(asked)
            await self._forget()
            schedule.resynced()
        is_busy = schedule.is_open and await self._decide(schedule)
        await self._write(read_to, ends=not schedule.is_resting)
        if self._has_freed and not self._engine.state.ends:
            self._has_freed = False
            await self._notifier.publish(Topic.INTENT)
        return is_busy

    async def _forget(self) -> None:
        """Forget, at intervals, what is handled and what is older than the log as it is now."""
        first, self._first = self._first, None
        if first is not None and (count := await self._engine.forget(before=first)):
            log.info("forgot %s: nothing is left to be handled", counted(count, "deleted object"))

    async def _find_first(self) -> None:
        """Ask at intervals where the log begins; the loop does not wait for the answer."""
        while True:
            try:
                self._first = (await self._stream.state()).first_seq
            except Unavailable as error:
                log.log(level_of(error), "what is handled is kept for now: %s", error)
            await asyncio.sleep(PRUNE_EVERY.total_seconds())

    def _plan(self, schedule: Schedule) -> None:
        due_at, now = self._engine.next_due, self._engine.clock.now()
        if due_at is not None and due_at <= now:  # a level that is held up: look again, not at once
            due_at = now + HELD_UP_PAUSE
        schedule.plan(due_at, now)

    async def _fold(self, records: list[LoggedRecord], schedule: Schedule) -> None:
        began = self.health.clock()
        folded = self._engine.fold(records)
        self.health.note(began, folded=folded)
        schedule.take(folded.wakes)
        # a wakeup may have waited for these records
        if folded.has_finished_sync:
            schedule.open()
        await self._note(folded, records)

    async def _write(self, read_to: Sequence, *, ends: bool) -> None:
        """Write what is folded, if it is time, and how far there was nothing to fold; with `ends`, what has ended."""
        engine, now = self._engine, asyncio.get_running_loop().time()
        is_quiet = read_to - min(map(engine.folded_to.__getitem__, engine.epochs)) >= CONFIRM_EVERY
        if not (engine.has_unwritten or is_quiet):
            self._writes_at = 0.0
            return
        if not self._writes_at:
            self._writes_at = now + self._writes_after.total_seconds()
        is_much = len(engine.state.unwritten) >= MOST_UNWRITTEN
        if is_quiet or is_much or now >= self._writes_at:
            left = engine.tables.backfills
            await engine.flush(read_to=read_to if is_quiet else 0)
            await self._tell_keys()
            if engine.tables.backfills < left:  # daemons, and views of others, knew nothing of these levels
                await self._notifier.publish(Topic.LEVELS)
                await self._notifier.publish(Topic.WAKE, but_not=self._listener)
            self._writes_at = 0.0
        elif ends and engine.state.ends:
            await engine.flush(has_time=False)

    async def _tell_keys(self) -> None:
        """Tell who follows indices what has changed, now that it is in the tables."""
        keys, self._unheard = self._unheard, set()
        if self._on_keys is not None:
            self._on_keys(keys)
        if self.program.follows(keys):  # who follows an index may be anywhere
            await self._notifier.publish(Topic.WAKE, but_not=self._listener)

    async def _write_last(self) -> None:
        """Write what is folded, as far as that can be done at the end."""
        try:
            if self._engine.tables.is_whole and self._engine.has_unwritten:
                await self._engine.flush()
        except LevelogError as error:
            log.info("what was folded last is folded again by the next processor: %s", error)

    @property
    def _write_wait(self) -> timedelta:
        """Time until what is folded is written."""
        if not self._writes_at:
            return RESYNC
        return timedelta(seconds=max(0.0, self._writes_at - asyncio.get_running_loop().time()))

    async def _note(self, folded: Folded, records: list[LoggedRecord]) -> None:
        if not folded.records:
            return
        self.records += folded.records
        self._unheard |= folded.keys
        if self.program.follows(folded.keys):
            await self._engine.flush()
            await self._tell_keys()
        if self._timers.is_needed:
            self._timers.see(records)
        log.debug("folded %s", counted(folded.records, "record"), extra={"sequence": records[-1].sequence})
        if folded.has_news:
            await self._notifier.publish(Topic.LEVELS)
        # with other processors, one may have committed an intent meanwhile that waits for such a target
        self._has_freed |= folded.frees_targets or (folded.has_receipts and self._engine.is_shared)

    async def _decide(self, schedule: Schedule) -> bool:
        """Decide on one batch of levels; tells whether there may be more right now."""
        schedule.close()
        began, most = self.health.clock(), self._portion.begin()
        batch = await self._engine.decide(leaving=schedule.put_off, most=most)
        self._portion.end(batch)
        self.health.note(began, batch=batch)
        if not self._engine.has_unwritten:
            await self._tell_keys()
        await self._tell(batch, schedule)
        self._plan(schedule)
        await self._statistics.keep(len(batch.decided))
        return schedule.is_open

    async def _tell(self, batch: EvaluationBatch, schedule: Schedule) -> None:
        schedule.note(batch)
        if batch.has_more:
            schedule.open()
        if not batch.decided:
            return
        newest = max(decided.level.cause for decided in batch.decided)
        log.debug("decided on %s", counted(len(batch.decided), "level"), extra={"sequence": newest})
        if batch.is_intent_pending:
            await self._notifier.publish(Topic.INTENT)
        if batch.has_news:
            await self._notifier.publish(Topic.LEVELS)
        if batch.has_told and self._engine.is_shared:  # others may own those that look the levels up
            await self._notifier.publish(Topic.WAKE, but_not=self._listener)
