"""The engine: folds records into State, decides on levels, and writes both to the tables, one step at a time.

`load` reads the tables, `fold` changes State in memory, `decide` calls views and reconcile functions, and commits;
`flush` writes what is only folded. `notice` takes what other processes ask for, `forget` drops what is handled. `load`
and `fold` call users' index functions, `fold`, `decide` and `notice` filters. It reads no log, sends nothing to the API
server, and waits for functions, never for records: its caller hands it these, and chooses when. An actuator sends the
intents that it commits; that of the same process is handed those which the commit has claimed for it.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Sequence as LogSequence
from levelog_base.wire.records import LoggedRecord, ReceiptNoted, SyncFinished
from levelog_processors.clock import DatabaseClock
from levelog_processors.decide.decisionrules import conclude
from levelog_processors.decide.evaluating import Evaluator, are_of_others
from levelog_processors.decide.facts import Outlook
from levelog_processors.decide.functions import MOST_BEGUN, PATIENCE, Acted, Acting, Caller
from levelog_processors.decide.levelstatuses import changed_places, deciding_views, woken
from levelog_processors.decide.readiness import Readiness
from levelog_processors.decide.statereader import StateReader
from levelog_processors.decide.tally import BATCH, EvaluationBatch
from levelog_processors.fold.batches import ALONE, Folded, parts, tell_forgotten, tell_unreadable
from levelog_processors.program import Program
from levelog_processors.restoring import (
    index_anew,
    leave_out,
    left_behind,
    restored,
    wake_from_ahead,
    wake_missed,
    wake_outdated,
)
from levelog_processors.state.contents import MOST_BYTES
from levelog_processors.state.state import State
from levelog_processors.state.writes import is_settled
from levelog_processors.tables import Tables
from levelog_store.actuate.claims import Claimant
from levelog_store.decide.decisions import Decided, PendingWake
from levelog_store.decide.inputreads import wakes_in_turn
from levelog_store.fold.changes import Changes, Wake
from levelog_store.fold.statereads import AwaitedWrite
from levelog_store.rows import StoredObject, ViewParent

log = logging.getLogger(__name__)


class Engine:
    """Folds all partitions in memory and decides for the leased ones, one step at a time; the caller chooses when.

    Processors, simulations, `what-if` and the state machines of the tests all step this engine. What is folded is
    written by `flush`, some of it with the next decisions. Steps raise LeaseLost, with nothing committed, if the
    partitions are no longer leased, and CommitsLost if the tables are behind the earlier steps: after that, and after
    any other failure of a step, `load` has to start again from the tables.
    """

    def __init__(
        self,
        tables: Tables,
        program: Program,
        *,
        patience: timedelta | None = PATIENCE,
        redactor: Redactor | None = None,
        caller: Caller | None = None,
        claimant: Claimant | None = None,
        most_bodies: int = MOST_BYTES,
    ) -> None:
        """`patience`: how long a batch waits for slow reconcile functions, which a later one concludes; None: for ever.

        `redactor`: that of what is recorded. `caller`: what calls reconcile functions, if it is another than usual.
        `claimant` is handed new intents that are claimed for it already, as far as it has room. `most_bodies`: bytes of
        bodies that it holds, while the tables have the others.
        """
        self.tables = tables
        self._scope = scope = tables.scope
        self._program = program
        self._redactor = redactor or Redactor()
        self.acting = Acting(
            caller or Caller(), patience=patience, redactor=self._redactor, identity=(scope.cluster, scope.application)
        )
        self.evaluator = Evaluator(tables, program, self._redactor)
        self.claimant = claimant
        self._most_bodies = most_bodies if tables.hold_state else None
        self.state = State(program, scope.application, scope.partitions)
        self.newest = LogSequence(0), ""
        """The newest record that was folded into the tables, of any partition, when the partitions were taken."""
        self.clock = DatabaseClock()
        self._readiness: Readiness | None = None
        self._warned = frozenset[str]()
        """Resources of which a warning has said that they are recorded in another version."""
        self._has_new_lookups = False
        """Levels of others are looked up for the first time: what is held of them may be old, and is read again."""
        self._has_missed = False
        """Levels may have to be woken for what was folded while others held their partitions."""
        self.decided_to: dict[int, int] = {}
        """Up to which record levels were decided on when the partitions were taken; objects may be behind that."""
        self._changed_views = frozenset[str]()
        """Views whose code had changed then."""
        self._awaited: Sequence[AwaitedWrite] = ()
        """Writes that were not settled when the partitions were taken."""
        self._decided_at: datetime | None = None
        self._may_be_set_back = True
        """Whether the clock may have been set back, and levels been decided on at a time that is not there yet."""

    async def close(self) -> None:
        """End what runs of users' functions, as far as it can be ended."""
        await self.acting.close()

    @property
    def epochs(self) -> Mapping[int, int]:
        """Leases under which it commits, by partition."""
        return self.tables.epochs

    @property
    def is_shared(self) -> bool:
        """Tell whether others hold partitions too."""
        return len(self.epochs) < self._scope.partitions

    @property
    def has_unwritten(self) -> bool:
        """Tell whether something is folded that is not in the tables."""
        state = self.state
        are_unwritten = state.unwritten, state.unwritten_reads, state.wakes.unwritten
        return any((state.ends, state.ends.checkpoints, *are_unwritten)) or self.tables.are_behind(state)

    # -- begin

    async def load(self, epochs: Mapping[int, int]) -> None:
        """Work under these leases from now on, from what the tables hold."""
        self._may_be_set_back, self._readiness = True, None
        found = await self.tables.load(epochs, self._program.kept)
        if found is None:  # the tables hold no state: memory has it all
            return
        self.clock.look(found.moment)
        self.newest = LogSequence(found.newest[0]), found.newest[1]
        state = self.state = restored(self._program, self._scope.application, found, epochs, self._most_bodies)
        for job, names in left_behind(state, found.unfinished):
            rows = await self.evaluator.whole(state, names)
            state.apply(index_anew(state, job, list(rows.values())), is_leased=job.partition in state.leased)
            state.let_go()
            await asyncio.sleep(0)  # leases and probes go on between two pages
        wake_outdated(state, found.unfinished)
        self._has_missed, self._awaited = True, found.awaited
        self.decided_to = {partition: found.folded_to[partition] for partition in epochs}
        self._changed_views = frozenset(each.name for each in found.unfinished if each.kind == "view")

    # -- fold

    def fold(self, records: Iterable[LoggedRecord]) -> Folded:
        """Fold the records that are not folded yet, those of each partition in the order of the log."""
        state = self.state
        state.may_lack_levels = self.tables.may_lack_levels
        fresh = [logged for logged in records if logged.sequence > state.folded_to[logged.partition]]
        known, rest = _parted(fresh, self.decided_to)
        for part in parts(known):
            state.recall(state.fold(part, counts_rounds=False), self._changed_views)
        wakes: dict[ViewParent, Wake] = {}
        folded: list[Changes] = []
        receipts: list[ReceiptNoted] = []
        has_withdrawn = False
        for is_leased in (True, False) if self.is_shared else (True,):
            for part in parts(each for each in rest if (each.partition in self.epochs) == is_leased):
                changes = state.fold(part, counts_rounds=is_leased)
                wakes |= state.apply(changes, is_leased=is_leased)
                folded.append(changes)
                if is_leased:
                    receipts += (each.record for each in changes.receipts)
                    has_withdrawn |= bool(changes.gone)  # with a level its unclaimed intents go
        kinds = {type(logged.record) for logged in fresh}
        has_list = not kinds.isdisjoint(ALONE)
        if has_list:
            self._readiness = None
        if self.tables.hold_state:  # else a replay, which decides anew whatever the log tells of
            tell_forgotten({level: to for changes in folded for level, to in changes.forgotten.items()})
            tell_unreadable(row for changes in folded for row in changes.unreadable.values())
        gone = {view for changes in folded for view, _ in changes.gone}
        blocked = {view for changes in folded for each in changes.replaced for view in each.views}
        return Folded(
            len(fresh),
            wakes,
            has_finished_sync=SyncFinished in kinds,
            has_list=has_list,
            keys={key for changes in folded for key in changes.keys},
            has_receipts=bool(receipts),
            frees_targets=has_withdrawn or any(str(each.target) in state.writes.of for each in receipts),
            has_news=not self._program.awaited.isdisjoint(gone | blocked),
        )

    async def flush(self, *, read_to: int = 0, has_time: bool = True) -> None:
        """Write what is folded. The log was read up to `read_to`, and has nothing else of the partitions until there.

        Without `has_time`, objects and entries stay behind, as with a decision.
        """
        await self.tables.flush(self.state, read_to=read_to, has_time=has_time)

    # -- decide

    @property
    def readiness(self) -> Readiness:
        """Which views may decide, and in which namespaces."""
        if self._readiness is None:
            found = Readiness(self._program, self.state.syncs.values(), partitions=self._scope.partitions)
            for name in sorted(found.others.keys() - self._warned):
                said = "%s is recorded in version %s, this code declares %s: its views wait for a list in that version"
                log.warning(said, name, *found.others[name])
            self._warned = frozenset(found.others)
            self._readiness = found
        return self._readiness

    async def forget(self, *, before: int) -> int:
        """Forget deleted objects with nothing left to handle, and tombstones and versions of keys from before `before`.

        Returns how many objects.
        """
        rows = self.state.handled()
        if rows:
            calling = await self.tables.calling([row.uid for row in rows])
            rows = [row for row in rows if row.uid not in calling]
        self.state.forget_handled(rows)
        self.state.forget_old(before)
        if self.has_unwritten:
            await self.flush()
        return len(rows)

    async def notice(self) -> Collection[ViewParent]:
        """Take what other processes ask for, their levels that are looked up here, and the time. Raises CommitsLost.

        Returns whom else they ask for, pairs of handler and object: no levels, but calls that leave no records.
        """
        moment, calls = await self.tables.notice(self.state)
        self.clock.look(moment)
        await self._look_around()
        return calls

    async def _look_around(self) -> None:
        self._has_new_lookups = False
        if self.is_shared and self._program.looked_up:
            await self.evaluator.look_around(self.state_reader)

    async def decide(
        self, *, now: datetime | None = None, leaving: Collection[ViewParent] = (), most: int = BATCH
    ) -> EvaluationBatch:
        """Decide on up to `most` due levels at once, at `now` or else by the database's clock.

        One level of a suspected view comes on top, and those whose functions have returned; `leaving` are levels to
        leave alone. Writes what records have ended too, if any view is ready; objects and entries wait for `flush`,
        unless `State.is_pressing`.
        """
        state, acting = self.state, self.acting
        views = frozenset(deciding_views(self._program, self.readiness.views))
        at = self.clock.now() if now is None else now
        if not views:
            return EvaluationBatch((), at)
        self._wake_for_time(at)
        if self._has_new_lookups:
            await self._look_around()
        if state.ends.reverted or state.ends.unmade:  # which end rows that only SQL finds, or make levels
            await self.flush()
        back = await self._returned()
        wakes = self._due(views, at, {look.facts.name for look, _ in back}.union(leaving), most)
        acted = [*back, *await acting.act(await self._look(wakes, at), self.epochs)]
        complete = await self.evaluator.complete(self.state_reader, acted)
        valid, claimed = await self._commit([conclude(look, round_, at) for look, round_ in complete])
        return EvaluationBatch(
            valid,
            at,
            claimed,
            has_more=self._has_new_lookups or bool(self._due(views, at, leaving, 1)),
            has_looked_up=any(each.wake.view in self._program.looked_up for each in valid),
            has_news=any(each.is_news and each.wake.view in self._program.awaited for each in valid),
        )

    async def _returned(self) -> list[Acted]:
        """Levels whose slow functions have returned, but not those that would see something else now: they stay due."""
        returned = self.acting.returned(self.epochs)
        await self.evaluator.refill(self.state, {look.facts.name[1] for look, _ in returned})
        return [each for each in returned if self.state_reader.is_as_seen(each[0])]

    async def _look(self, wakes: Sequence[PendingWake], at: datetime) -> Sequence[Outlook]:
        """Look at levels that are due, and call their views; those that the views do not have any more go."""
        looks, left = await self.evaluator.look(self.state_reader, wakes, at) if wakes else ([], [])
        known = {*left, *(look.facts.name for look in looks)}
        for level in sorted({(wake.view, wake.parent) for wake in wakes} - known):
            leave_out(self.state, level)
        return looks

    def _wake_for_time(self, at: datetime) -> None:
        """Wake levels that were decided on later than now, and those that a former holder may not have woken."""
        self._may_be_set_back |= self._decided_at is not None and at < self._decided_at
        self._decided_at = at
        if self._may_be_set_back:
            wake_from_ahead(self.state, at)
        if self._has_missed:
            state_reader = self.state_reader
            shown = (each for each in self._awaited if is_settled(state_reader.with_target(each)))
            wake_missed(state_reader, {(each.view, each.parent) for each in shown}, at)
            self._awaited = ()
        self._may_be_set_back = self._has_missed = False

    def _due(
        self, views: Collection[str], at: datetime, leaving: Collection[ViewParent], most: int
    ) -> list[PendingWake]:
        """What may be decided on now; of suspected views one level at a time, after all others."""
        wakes, acting, state_reader = self.state.wakes, self.acting, self.state_reader
        self.evaluator.suspects.forget(at)

        def is_meant(wake: PendingWake, *, is_suspected: bool = False) -> bool:
            level = wake.view, wake.parent
            if wake.view not in views or (wake.view in self.evaluator.suspects) != is_suspected:
                return False
            return not (level in acting or level in leaving or state_reader.is_early(wake, at))

        found = wakes.due(at, is_meant, max(0, min(most, MOST_BEGUN - len(acting))))
        suspected = wakes.due(at, partial(is_meant, is_suspected=True), 1) if self.evaluator.suspects else []
        return [*wakes_in_turn(found), *suspected]

    async def whole(self, names: Collection[str]) -> Mapping[str, StoredObject]:
        """The objects of these names that there are, with their bodies."""
        return await self.evaluator.whole(self.state, names)

    @property
    def state_reader(self) -> StateReader:
        """What is seen of the State now."""
        return StateReader(self._program, self.state, self.readiness.namespaces)

    async def _commit(self, batch: Sequence[Decided]) -> tuple[Sequence[Decided], Collection[str]]:
        """Write the decisions that still hold, with what records ended; those that changed code confirms need no row.

        Returns them, and the intents that are claimed.
        """
        state, state_reader = self.state, self.state_reader
        holding = [
            each
            for each in batch
            if all(state_reader.version(place) == version for place, version in each.versions.items())
        ]
        confirmed = [same for each in holding if (same := state.outdated.confirmed(each)) is not None]
        names = {each.name for each in confirmed}
        fresh = [each for each in holding if each.name not in names]
        shown = changed_places(self._program, confirmed)
        if not fresh and not state.ends:
            state.confirm(confirmed, shown)
            return confirmed, ()
        async with self.tables.deciding(state, fresh, self.claimant) as written:
            for decided in written.valid:
                state.take(decided)
                self._has_new_lookups |= self.is_shared and are_of_others(state, decided.dependencies_added)
            state.confirm(confirmed, shown)  # which may be looked up in this very batch for the first time
            asked = woken(self._program, written.valid)
            state.wake_lookups(changed_places(self._program, written.valid), asked)
            state.ask(asked)
        return [*confirmed, *written.valid], written.claimed


def _parted(
    records: Iterable[LoggedRecord], decided_to: Mapping[int, int]
) -> tuple[list[LoggedRecord], list[LoggedRecord]]:
    """Records that the last decisions on levels have taken in already, and newer ones."""
    known: list[LoggedRecord] = []
    rest: list[LoggedRecord] = []
    for logged in records:
        (known if logged.sequence <= decided_to.get(logged.partition, 0) else rest).append(logged)
    return known, rest
