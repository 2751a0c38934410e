"""The engine, one step at a time: fold records, decide what is due, tell what is due next."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from time import perf_counter
from typing import Final

from levelog.secrets.redaction import Redactor
from levelog.wire.objects import Sequence
from levelog.wire.records import LoggedRecord, ReceiptNoted, TargetSighted
from levelog_log.stream import LogStream
from levelog_processors.decide.cut import BATCH, Cut, Decider
from levelog_processors.decide.functions import PATIENCE, Caller
from levelog_processors.decide.readiness import Lag, Readiness
from levelog_processors.decide.transaction import Carried
from levelog_processors.fold.batches import Folded, Folder, foldable_at_once
from levelog_processors.program import Program
from levelog_store.actuate.claims import Claimant
from levelog_store.connect.database import Database
from levelog_store.decide import inputreads as stored
from levelog_store.fold.heldreads import read_syncs
from levelog_store.fold.levelwrites import wake_from_ahead
from levelog_store.owners.leases import check_checkpoints, guard
from levelog_store.rows import Scope, ViewParent

log = logging.getLogger(__name__)

_OF_WRITES: Final = (ReceiptNoted, TargetSighted)
"""Records that rarely lead to another write, so that the commit need not wait for the disk."""


class Engine:
    """Folds and decides for the leased partitions, one step at a time; the caller chooses when.

    Processors, simulations, replay in mode `log` and the state machines of the tests all step this engine. Steps raise
    LeaseLost, with nothing committed, if the partitions are no longer leased, and CommitsLost if the tables are behind
    the earlier steps: `hold` then starts again from the tables.
    """

    def __init__(
        self,
        database: Database,
        scope: Scope,
        program: Program,
        *,
        stream: LogStream | None = None,
        patience: timedelta | None = PATIENCE,
        redactor: Redactor | None = None,
        caller: Caller | None = None,
        claimant: Claimant | None = None,
    ) -> None:
        """`stream` tells how far other processors have to fold; without it, all partitions are owned here.

        The other arguments are those of `Decider`.
        """
        self._database = database
        self._scope = scope
        self._program = program
        self._stream = stream
        self._folder = Folder(database, scope, program)
        self.decider = Decider(
            database, scope, program, patience=patience, redactor=redactor, caller=caller, claimant=claimant
        )
        """Counts the calls of users' functions, and has those that run; its claimant may be replaced."""
        self._readiness: Readiness | None = None
        """None: to be looked up."""
        self._has_decided = False
        """In a transaction of its own, since the partitions were taken."""
        self._told = frozenset[str]()
        """Resources of which it was said that they are recorded in another version."""
        self.epochs: Mapping[int, int] = {}
        """Leases under which it commits, by partition."""
        self.folded_to: dict[int, int] = {}
        """Sequence up to which each partition that is held is folded."""
        self._decided_at: datetime | None = None
        """The time of the last cut."""
        self._is_set_back = True
        """The clock may have been set back, and levels have been decided on at a time that is not there yet."""
        self.newest = Sequence(0), ""
        """The newest record that the tables come from, of any partition, when the partitions were taken."""

    @property
    def is_shared(self) -> bool:
        """Tell whether others hold partitions too."""
        return len(self.epochs) < self._scope.partitions

    async def close(self) -> None:
        """End what runs of users' functions, as far as it can be ended."""
        await self.decider.acting.close()

    async def hold(self, epochs: Mapping[int, int]) -> None:
        """Work under these leases from now on, from the checkpoints of their partitions."""
        async with self._database.reading() as connection:
            checkpoints = await stored.read_checkpoints(connection, self._scope)
            sequence, record_id = await stored.read_last_record(connection, self._scope)
        self.newest = Sequence(sequence), record_id
        self.epochs = epochs
        self._folder.api_versions = None
        self.folded_to = {partition: checkpoints[partition] for partition in epochs}
        self._readiness = None
        self._has_decided = False
        self._is_set_back = True

    async def fold(self, records: Iterable[LoggedRecord]) -> Folded:
        """Fold the records of leased partitions that are not folded yet, in the order of the log."""
        fresh = self._fresh(records)
        folded = await self._folder.fold(self.epochs, fresh, self.folded_to)
        for logged in fresh:
            self.folded_to[logged.partition] = logged.sequence
        if folded.has_list:
            self._readiness = None
        return folded

    def may_do_both(self, records: list[LoggedRecord]) -> bool:
        """Tell whether `fold_and_decide` may be done with these records.

        Not where others hold partitions too, whose keys it would lock in another order; nor with many records, or where
        functions are slow, since other transactions wait; nor while a view is suspected, whose levels are decided on
        aside, from what is committed; nor before a decision by itself has succeeded, so that whatever fails there does
        not hold up the fold; nor after the clock was set back, which that looks after.
        """
        decider = self.decider
        is_quick = decider.slowness.is_quick and not decider.suspects
        if self.is_shared or not self._has_decided or not is_quick or len(records) > BATCH or self._is_set_back:
            return False
        return foldable_at_once(records) and bool(self._fresh(records))

    def _fresh(self, records: Iterable[LoggedRecord]) -> list[LoggedRecord]:
        return [logged for logged in records if logged.sequence > self.folded_to[logged.partition]]

    async def fold_and_decide(
        self,
        records: list[LoggedRecord],
        leaving: Callable[[Folded], Collection[ViewParent] | None],
        *,
        but_not: Collection[str] = (),
        read_to: int = 0,
        most: int = BATCH,
    ) -> tuple[Folded, Cut | None]:
        """Fold records and decide on what is due, in one transaction, if `may_do_both`.

        `leaving` is asked between the two which levels to leave alone; None: all, there is nothing to decide. The rest
        is as `fold` and `decide` take it.
        """
        fresh = self._fresh(records)
        views, lag = self._deciding_on(await self.readiness(), but_not, read_to)
        folded_to = self.folded_to | {logged.partition: logged.sequence for logged in fresh}
        guarded = {logged.partition for logged in fresh}
        is_durable = self.decider.claimant is not None and any(
            not isinstance(each.record, _OF_WRITES) for each in fresh
        )
        cut: Cut | None = None
        async with self.decider.deciding(durable=is_durable, guarded=guarded) as within:
            held = await self._folder.read_within(within.connection, self.epochs, fresh, self.folded_to)
            began = perf_counter()
            folded, within.objects = await self._folder.fold_within(within.connection, fresh, held)
            self.decider.slowness.note(timedelta(seconds=(perf_counter() - began) / len(fresh)))
            within.carried = Carried(folded.wakes)
            left = leaving(folded)
            if left is not None and views:
                cut = await self.decider.cut(
                    self.epochs, views, lag.concerns, folded_to=folded_to, leaving=left, most=most, within=within
                )
            await within.carried.leave(within.connection, self._scope)
        self.folded_to = folded_to
        if cut is not None:
            self._note_time(cut.at)
        return folded, cut

    async def confirm(self, sequence: int) -> None:
        """Store that the leased partitions have no unfolded record up to a sequence."""
        await self._folder.confirm(self.epochs, sequence, self.folded_to)
        self.folded_to = {partition: max(at, sequence) for partition, at in self.folded_to.items()}

    async def readiness(self) -> Readiness:
        """Which views may decide, and in which namespaces."""
        found = self._readiness
        if found is None:
            async with self._database.reading() as connection:
                rows = (await read_syncs(connection, self._scope)).values()
            found = Readiness(self._program, rows, partitions=self._scope.partitions)
            for name in sorted(found.others.keys() - self._told):
                said = "%s is recorded in version %s, this code declares %s: its views wait for a list in that version"
                log.warning(said, name, *found.others[name])
            self._told = frozenset(found.others)
        # another processor may fold the end of a list: then it is looked up again at the next step
        is_final = not self.is_shared or len(found.views) == len(self._program.views)
        self._readiness = found if is_final else None
        return found

    async def decide(
        self,
        *,
        but_not: Collection[str] = (),
        leaving: Collection[ViewParent] = (),
        read_to: int = 0,
        now: datetime | None = None,
        most: int = BATCH,
    ) -> Cut | None:
        """Decide on `most` due wakeups at once, at `now` or else by the database's clock; None: no view may.

        `but_not` names views that wait for something else, `leaving` levels to leave alone. The leased partitions have
        no unfolded record up to `read_to`.
        """
        views, lag = self._deciding_on(await self.readiness(), but_not, read_to)
        if not views:
            return None
        if self._is_set_back:
            async with self._database.transaction(durable=False) as connection:
                await guard(connection, self._scope, self.epochs)
                await wake_from_ahead(connection, self._scope, list(self.epochs), now)
            self._is_set_back = False
        cut = await self.decider.cut(
            self.epochs, views, lag.concerns, folded_to=self.folded_to, leaving=leaving, now=now, most=most
        )
        self._has_decided = True
        self._note_time(cut.at)
        return cut

    def _note_time(self, at: datetime) -> None:
        self._is_set_back |= self._decided_at is not None and at < self._decided_at
        self._decided_at = at

    def _deciding_on(self, readiness: Readiness, but_not: Collection[str], read_to: int) -> tuple[list[str], Lag]:
        """Views that may decide now, and what tells which of their wakeups have to wait."""
        self.decider.namespaces = readiness.namespaces
        lag = Lag(self._database, self._scope, self._program, self._stream, frozenset(self.epochs), read_to)
        return [name for name in readiness.views if name not in but_not], lag

    async def next_due(self) -> tuple[datetime, datetime] | None:
        """When the first wakeup is due that waits for its time, and the database's time now; None if none waits."""
        async with self._database.reading() as connection:
            check_checkpoints(self._scope, await stored.read_checkpoints(connection, self._scope), self.folded_to)
            return await stored.read_next_due(connection, self._scope, list(self.epochs))
