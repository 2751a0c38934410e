"""One processor: leases partitions, reads their records in order, folds them, and decides at each cut."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from time import monotonic
from typing import Final

from msgspec.structs import replace

from levelog.absence import level_of
from levelog.calls.caller import THREADS
from levelog.counting import counted
from levelog.errors import HistoryLost, LeaseLost, Unavailable
from levelog.secrets.redaction import Redactor
from levelog.wire.objects import Partition, Sequence
from levelog.wire.records import LoggedRecord
from levelog_log.hints import Hints, Topic
from levelog_log.reader import Reader
from levelog_log.stream import LogStream
from levelog_processors.decide.cut import CallCounts, Cut
from levelog_processors.decide.functions import MOST_BEGUN, Caller
from levelog_processors.decide.portions import Portion
from levelog_processors.deliver.feed import RecordFeed
from levelog_processors.deliver.held import CallOutcome, HoldStatus
from levelog_processors.deliver.timers import Timers
from levelog_processors.engine import Engine
from levelog_processors.fold.backfilling import Backfiller, Pace
from levelog_processors.fold.batches import Folded
from levelog_processors.headway import CatchingUp, Headway
from levelog_processors.program import Program
from levelog_processors.pulse import Pulse
from levelog_processors.upkeep import PARTITION, Pruner, Statistics, start_over
from levelog_processors.waiting import SAFETY_SWEEP, Agenda, Arrivals, Horizon
from levelog_store.actuate.claims import Claimant
from levelog_store.connect.database import Database
from levelog_store.look.overview import Workload, count_work
from levelog_store.owners.leases import Leases
from levelog_store.rows import IndexKey, Scope, ViewParent

log = logging.getLogger(__name__)

BACKFILL_RATE: Final = 5000.0
"""Objects that each processor recomputes per second after a code change."""

RETRY_PAUSE: Final = timedelta(seconds=1)
HELD_UP_PAUSE: Final = timedelta(milliseconds=200)
"""How long a wakeup waits that is due and cannot be decided yet, since a function still runs or a view is not ready."""
CONFIRM_EVERY: Final = 1000
"""Records after which the checkpoints of partitions without records are moved, so that a restart reads little."""


class Processor:
    """Folds and decides for the partitions that it leases; any number may run, on PostgreSQL.

    It keeps no state of its own: if it is killed, another one continues from the tables. `on_keys` is called with the
    keys of indices that a fold, or a page of a backfill, has changed.
    """

    def __init__(
        self,
        database: Database,
        scope: Scope,
        program: Program,
        stream: LogStream,
        hints: Hints,
        *,
        owner: str,
        threads: int = THREADS,
        on_keys: Callable[[Collection[IndexKey]], None] | None = None,
        backfill_rate: float = BACKFILL_RATE,
        redactor: Redactor | None = None,
        claimant: Claimant | None = None,
        events_from: int | None = None,
        is_dry: bool = False,
    ) -> None:
        """`threads`: how many reconcile functions that are not async run at one time.

        `redactor`: that of what is recorded. `claimant`: the actuator of this process, if it has one. `events_from`:
        sequence after which record handlers begin that are new; None: where the tables are.
        `is_dry`: nothing that leaves no records is called; handlers that are new begin all the same.
        """
        self._database = database
        self._scope = scope = replace(scope, owner=owner)
        self.program = program
        self._stream = stream
        self._hints = hints
        self._owner = owner
        self._on_keys = on_keys
        self._leases = Leases(database, scope, owner=owner)
        self._threads = threads
        caller = Caller(threads=threads)
        self._engine = Engine(
            database, scope, program, stream=stream, redactor=redactor, caller=caller, claimant=claimant
        )
        self._statistics = Statistics(database)
        self._feed = RecordFeed(database, scope, program, stream, hints)
        self._timers = Timers(database, scope, program)
        self._hint_of_held = hints.listen(Topic.HELD)
        self._events_from = events_from
        self._is_dry = is_dry
        self._hint = hints.listen(Topic.WAKE)
        self._hint_of_leases = hints.listen(Topic.LEASES)
        self._engine.decider.acting.on_return = self._hint.set
        self.pulse = Pulse()
        self._catching_up = CatchingUp(monotonic)
        self._portion = Portion()
        self._backfiller: Backfiller | None = None
        self.records = 0
        """Records folded."""
        self._owned = 0
        """Partitions that the log was last told of."""
        self._backfill_rate = backfill_rate

    @property
    def calls(self) -> CallCounts:
        """How often user functions were called."""
        return self._engine.decider.calls

    def trouble(self) -> str:
        """Why it may not decide, or does not; empty: it does, or stands by while others hold all partitions."""
        if monotonic() > self._leases.end_at:
            return "its leases are not renewed" if self._leases.end_at else "has no lease yet"
        if not self._leases.share:
            return ""
        return self.pulse.trouble() if self._engine.epochs else f"waits for {self._leases.share} partitions of others"

    @property
    def headway(self) -> list[Headway]:
        """How far it is with what holds decisions up for long; empty: with nothing of the kind."""
        catching_up = self._catching_up.headway
        begun = self._backfiller.headway if self._backfiller is not None else []
        return [catching_up, *begun] if catching_up is not None else begun

    @property
    def under_way(self) -> list[tuple[str, float]]:
        """Reconcile functions that have not returned: the view of each, and seconds since it was called."""
        return self._engine.decider.acting.ages

    @property
    def most_at_once(self) -> Mapping[str, int]:
        """How many calls there may be at one time of the reconcile function of each view that has one.

        Functions that are not async share their threads.
        """
        reconciled = ((view.name, view.reconcile) for view in self.program.views.values() if view.reconcile is not None)
        return {name: MOST_BEGUN if function.is_async else self._threads for name, function in reconciled}

    @property
    def held(self) -> Mapping[tuple[str, HoldStatus], int]:
        """How many objects wait for calls that leave no records, by handler and status; none is left out."""
        return {**self._feed.delivery.held, **self._timers.held}

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
                    else:
                        await self._hint_of_leases.wait(self._leases.interval)
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
            await self._hints.publish(Topic.LEASES, but_not=self._hint_of_leases)
        except Unavailable as error:
            log.warning("the leases of %s are not released and have to expire: %s", self._owner, error)

    async def _run_with(self, epochs: Mapping[int, int]) -> None:
        """Process the leased partitions until the leases change."""
        level = logging.DEBUG if self._owned == len(epochs) else logging.INFO
        self._owned, partitions = len(epochs), counted(self._scope.partitions, "partition")
        log.log(level, "owns %d of %s", len(epochs), partitions, extra={"owner": self._owner})
        # who had these partitions, or took them away, may have changed levels and told nobody: it was killed, promoted
        # other code or emptied the tables; that code may be one whose daemons wait for views that this one has not
        await self._hints.publish(Topic.LEVELS)
        if self._feed.delivery.is_needed:
            await self._feed.delivery.hold(epochs, start=self._events_from)
        if self._timers.is_needed:
            await self._timers.hold(epochs)
        work = {"leases": self._tend(epochs), "processor": self._work(epochs)}
        if PARTITION in epochs:
            work["pruning"] = Pruner(self._database, self._scope, self._stream, epochs[PARTITION]).run()
        if self._feed.delivery.is_needed and not self._is_dry:
            work["record handlers"] = self._feed.run(epochs)
        if self._timers.is_needed and not self._is_dry:
            work["timers"] = self._timers.run(self._hint_of_held)
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
            await self._hint_of_leases.wait(self._leases.interval)
            if await self._tended() != epochs:
                return

    async def _tended(self) -> dict[int, int]:
        """Renew the leases and send hints to affected processors; returns the epochs of the leased partitions."""
        epochs = await self._leases.tend()
        if self._leases.concern_others:
            await self._hints.publish(Topic.LEASES, but_not=self._hint_of_leases)
        return epochs

    async def _work(self, epochs: Mapping[int, int]) -> None:
        engine = self._engine
        await engine.hold(epochs)
        start = Sequence(min(engine.folded_to.values()) + 1)
        owned = [Partition(p) for p in sorted(epochs)] if engine.is_shared else None
        agenda = Agenda()
        clock = asyncio.get_running_loop().time
        pace = Pace(self._backfill_rate, clock)
        backfiller = self._backfiller = Backfiller(self._database, self._scope, self.program, epochs, pace)
        known, report = engine.newest, self._hints.report
        async with Reader(self._stream, start=start, newest=known, partitions=owned, report=report) as reader:
            arrivals = Arrivals(reader, self._hint)
            self.pulse.begin(reader)
            horizon = Horizon(reader, clock)
            try:
                while True:
                    records = await arrivals.records()
                    if records and engine.decider.claimant is not None:
                        records = await arrivals.completed(records, engine.decider.claimant)
                        if not engine.is_shared:  # others may wait for what they lead to
                            records = await arrivals.joined(records, agenda.rest)
                            agenda.see(records)
                    self.pulse.turn(records)
                    await horizon.look(len(records))
                    is_reached = await horizon.is_reached(has_records=bool(records))
                    if records and is_reached and engine.may_do_both(records):
                        await self._fold_and_decide(records, agenda, backfiller, arrivals.seen_to)
                    elif records:
                        await self._fold(records, agenda)
                    if not is_reached:
                        first = records[0].sequence if records else start
                        self._catching_up.go_on(first - 1, arrivals.seen_to, horizon.end)
                        if not records:
                            await arrivals.wait(SAFETY_SWEEP)
                        continue
                    self._catching_up.reach()
                    self._timers.open()
                    self.pulse.is_behind = False
                    is_busy = agenda.is_open and await self._decide(agenda, backfiller, arrivals.seen_to)
                    if await self._backfill(backfiller, agenda, is_busy=is_busy) or is_busy:
                        continue
                    if reader.seen_to - min(engine.folded_to.values()) >= CONFIRM_EVERY:
                        await engine.confirm(reader.seen_to)
                    self.pulse.rest()
                    if await arrivals.wait(min(agenda.wait, backfiller.wait)):
                        agenda.open()
            except HistoryLost as lost:
                await start_over(self._database, self._scope, epochs, reason=str(lost))
                raise
            finally:
                self._backfiller = None
                self._catching_up.reach()

    async def _fold(self, records: list[LoggedRecord], agenda: Agenda) -> None:
        began = self.pulse.clock()
        folded = await self._engine.fold(records)
        self.pulse.note(began, folded=folded)
        agenda.take(folded.wakes)
        # a wakeup may have waited for these records
        if folded.records and (folded.has_finished_sync or self._engine.is_shared):
            agenda.open()
        await self._note(folded, records)
        await self._statistics.keep(folded.records)

    async def _fold_and_decide(
        self, records: list[LoggedRecord], agenda: Agenda, backfiller: Backfiller, read_to: Sequence
    ) -> None:
        asks_for_times = False

        def leaving(folded: Folded) -> Collection[ViewParent] | None:
            nonlocal asks_for_times
            agenda.take(folded.wakes)
            if not agenda.is_open:
                return None
            asks_for_times = agenda.is_overdue
            agenda.close()
            return agenda.put_off

        but_not = await backfiller.look()
        began, most = self.pulse.clock(), self._portion.begin()
        folded, cut = await self._engine.fold_and_decide(records, leaving, but_not=but_not, read_to=read_to, most=most)
        self._portion.end(cut)
        self.pulse.note(began, folded=folded, cut=cut)
        await self._note(folded, records)
        await self._follow_up(cut, agenda, asks_for_times=asks_for_times)
        await self._statistics.keep(folded.records)

    async def _note(self, folded: Folded, records: list[LoggedRecord]) -> None:
        if not folded.records:
            return
        if self._timers.is_needed:
            self._timers.see(records)
        self.records += folded.records
        if self._on_keys is not None:
            self._on_keys(folded.keys)
        log.debug("folded %s", counted(folded.records, "record"), extra={"sequence": records[-1].sequence})
        # other processors may own the parents, or wait for these partitions; who follows an index may be anywhere
        if self._engine.is_shared or any(index in self.program.followed for index, _ in folded.keys):
            await self._hints.publish(Topic.WAKE, but_not=self._hint)
        if folded.has_news:
            await self._hints.publish(Topic.LEVELS)
        # with other processors, one may have committed an intent meanwhile that waits for such a target
        if folded.frees_targets or (folded.has_receipts and self._engine.is_shared):
            await self._hints.publish(Topic.INTENT)

    async def _backfill(self, backfiller: Backfiller, agenda: Agenda, *, is_busy: bool) -> bool:
        """Compute a page of what changed code left behind, if it is time; tells whether it did.

        Parents are woken only when no wakeup is left, so that slow handlers do not put what happens now at the end of a
        long queue.
        """
        step = await backfiller.step(wakes=not is_busy)
        if step is None:
            return False
        if self._on_keys is not None:
            self._on_keys(step.keys)
        if step.has_woken or step.has_finished:
            agenda.open()
        if step.has_finished and self._engine.is_shared:  # others may wait for it with their views
            await self._hints.publish(Topic.WAKE, but_not=self._hint)
        await self._statistics.keep(step.objects)
        return True

    async def _decide(self, agenda: Agenda, backfiller: Backfiller, read_to: Sequence) -> bool:
        """Decide on one batch of wakeups; tells whether there may be more right now."""
        asks_for_times = agenda.is_overdue
        agenda.close()
        but_not = await backfiller.look()
        began, most = self.pulse.clock(), self._portion.begin()
        cut = await self._engine.decide(but_not=but_not, leaving=agenda.put_off, read_to=read_to, most=most)
        self._portion.end(cut)
        self.pulse.note(began, cut=cut)
        await self._follow_up(cut, agenda, asks_for_times=asks_for_times)
        await self._statistics.keep(len(cut.decided) if cut is not None else 0)
        return agenda.is_open

    async def _follow_up(self, cut: Cut | None, agenda: Agenda, *, asks_for_times: bool) -> None:
        """Hint to whom a cut concerns, and plan the next look."""
        if cut is not None:
            await self._tell(cut, agenda)
        if asks_for_times:
            next_due = await self._engine.next_due()
            if next_due is not None and next_due[0] <= next_due[1]:  # a level that is held up: look again, not at once
                next_due = (next_due[1] + HELD_UP_PAUSE, next_due[1])
            agenda.plan(next_due)

    async def _tell(self, cut: Cut, agenda: Agenda) -> None:
        agenda.note(cut)
        if cut.has_more:
            agenda.open()
        if not cut.decided:
            return
        newest = max(decided.level.cause for decided in cut.decided)
        log.debug("decided on %s", counted(len(cut.decided), "level"), extra={"sequence": newest})
        if cut.is_intent_pending:
            await self._hints.publish(Topic.INTENT)
        if cut.has_news:
            await self._hints.publish(Topic.LEVELS)
        if cut.has_told and self._engine.is_shared:  # others may own those that look the levels up
            await self._hints.publish(Topic.WAKE, but_not=self._hint)
        for decided in cut.decided:
            if decided.due_at is not None:
                agenda.expect(decided.due_at, cut.at)
