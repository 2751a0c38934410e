"""One processor: leases partitions, and runs the loop for those that it has, with what else goes on beside it.

Beside the loop it keeps its leases, looks whether other processors are gone, prunes old rows, and runs the handlers
whose calls leave no records. Each works under the same leases, and all begin anew when these change.
"""

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
from levelog_base.errors import HistoryLost, LeaseLost, Unavailable
from levelog_base.secrets.redaction import Redactor
from levelog_log.notifications import Notifier, Topic
from levelog_log.stream import LogStream
from levelog_processors.announcements import announce_anew
from levelog_processors.decide.functions import MOST_BEGUN, Caller
from levelog_processors.decide.tally import CallCounts
from levelog_processors.deliver.feed import RecordFeed
from levelog_processors.deliver.timers import Timers
from levelog_processors.engine import Engine
from levelog_processors.health import WorkProgress
from levelog_processors.loop import WRITES_AFTER, Loop
from levelog_processors.program import Program
from levelog_processors.tables import SqlTables
from levelog_processors.upkeep import PARTITION, Pruner, Statistics, start_over
from levelog_store.actuate.claims import Claimant
from levelog_store.connect.database import Database
from levelog_store.look.overview import Workload, count_work
from levelog_store.owners.leases import LOOK_EVERY, Leases
from levelog_store.rows import IndexKey, Scope

log = logging.getLogger(__name__)

RETRY_PAUSE: Final = timedelta(seconds=1)


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
        self._leases = Leases(database, scope, owner=owner)
        self._threads = threads
        caller = Caller(threads=threads)
        self._engine = Engine(SqlTables(database, scope), program, redactor=redactor, caller=caller, claimant=claimant)
        self._feed = RecordFeed(database, scope, program, stream)
        self._timers = Timers(database, scope, program, self._engine.whole)
        self._events_from = events_from
        self._is_dry = is_dry
        self._leases_listener = notifier.listen(Topic.LEASES)
        self._loop = Loop(
            self._engine,
            program,
            stream,
            notifier,
            self._feed,
            self._timers,
            Statistics(database),
            on_keys=on_keys,
            writes_after=writes_after,
        )
        self.health = self._loop.health
        self._owned = 0
        """Partitions that the log was last told of."""

    @property
    def records(self) -> int:
        """How many it has folded."""
        return self._loop.records

    @property
    def index_failures(self) -> Mapping[str, int]:
        """How many objects index functions fail for, by index; others are not there."""
        return self._engine.state.buckets.failures()

    @property
    def calls(self) -> CallCounts:
        """How often user functions were called."""
        return self._engine.evaluator.calls

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
        catching_up = self.health.catching_up.progress
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
        await announce_anew(self._notifier)
        if self._feed.delivery.is_needed:
            await self._feed.delivery.hold(epochs, start=self._events_from)
        work = {
            "leases": self._tend(epochs),
            "processor": self._work(epochs),
            "log's beginning": self._loop.find_first(),
        }
        # others hold something that they may leave
        if self._database.is_shared and len(epochs) < self._scope.partitions:
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
        try:
            await self._loop.run(epochs)
        except HistoryLost as lost:
            await start_over(self._database, self._scope, epochs, reason=str(lost))
            raise
