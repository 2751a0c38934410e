"""The engine on State: folds in memory, and decides in one transaction for each batch of levels."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from msgspec.structs import replace

from levelog.secrets.redaction import Redactor
from levelog.wire.records import LoggedRecord, SyncFinished
from levelog_processors.decide.cut import BATCH, Asker, CallCounts, Cut, is_as_seen
from levelog_processors.decide.facts import Facts, Outlook, Round, digest_with, level_before
from levelog_processors.decide.functions import PATIENCE, Acted, Acting, Caller
from levelog_processors.decide.intents import last_called, places_of_calls, target_names, with_rows
from levelog_processors.decide.lookups import digest_of, digest_of_versions, sight
from levelog_processors.decide.readiness import Readiness, is_watched
from levelog_processors.decide.rules import conclude
from levelog_processors.decide.snapshot import as_watched
from levelog_processors.decide.standings import deciding_views, encoded, standings, told, woken
from levelog_processors.decide.views import Evaluation
from levelog_processors.fold.batches import ALONE, Folded, parts
from levelog_processors.fold.rules import parent_inputs
from levelog_processors.program import Program
from levelog_processors.state.state import State
from levelog_store.connect.database import Database
from levelog_store.decide import inputreads as stored
from levelog_store.decide.decisions import Decided, OpenIntent, PendingWake
from levelog_store.decide.decisionwrites import write_held
from levelog_store.decide.inputreads import wakes_in_turn
from levelog_store.fold.changes import Changes, Wake
from levelog_store.fold.ends import Ends, write_ends
from levelog_store.owners.leases import guard
from levelog_store.rows import Bucket, IndexKey, Scope, ViewParent, WholeIndex, is_of_levels, parent_at


class MemoryEngine:
    """Folds and decides for all partitions, one step at a time; the caller chooses when.

    It begins with an empty log. What the log can tell is in `state`; levels, intents and decisions are in SQL too.
    """

    def __init__(
        self,
        database: Database,
        scope: Scope,
        program: Program,
        *,
        patience: timedelta | None = PATIENCE,
        redactor: Redactor | None = None,
        caller: Caller | None = None,
    ) -> None:
        """`patience`: how long a cut waits for slow reconcile functions, which a later one concludes; None: for all.

        `redactor`: that of what is recorded. `caller`: what calls reconcile functions, if it is another than usual.
        """
        self._database = database
        self._scope = scope
        self._program = program
        self._redactor = redactor or Redactor()
        self.acting = Acting(
            caller or Caller(),
            patience=patience,
            redactor=self._redactor,
            identity=(scope.cluster, scope.application),
        )
        self.state = State(program, scope.application, scope.partitions)
        self.calls = CallCounts()
        self.epochs: Mapping[int, int] = {}
        self._readiness: Readiness | None = None

    async def close(self) -> None:
        """End what runs of users' functions, as far as it can be ended."""
        await self.acting.close()

    async def hold(self, epochs: Mapping[int, int]) -> None:
        """Work under these leases from now on."""
        self.epochs = epochs

    def fold(self, records: Iterable[LoggedRecord]) -> Folded:
        """Fold records that are not folded yet, in the order of the log. What they end is written at the next cut."""
        state = self.state
        fresh = [logged for logged in records if logged.sequence > state.folded_to[logged.partition]]
        wakes: dict[ViewParent, Wake] = {}
        folded: list[Changes] = []
        for part in parts(fresh):
            changes = state.fold(part)
            wakes |= state.apply(changes)
            folded.append(changes)
        kinds = {type(logged.record) for logged in fresh}
        has_list = not kinds.isdisjoint(ALONE)
        if has_list:
            self._readiness = None
        return Folded(
            len(fresh),
            wakes,
            has_finished_sync=SyncFinished in kinds,
            has_list=has_list,
            keys={key for changes in folded for key in changes.keys},
        )

    @property
    def readiness(self) -> Readiness:
        """Which views may decide, and in which namespaces."""
        if self._readiness is None:
            self._readiness = Readiness(self._program, self.state.syncs.values(), partitions=self._scope.partitions)
        return self._readiness

    @property
    def next_due(self) -> datetime | None:
        """When the first wakeup is due that waits for its time; None if none waits."""
        return self.state.wakes.next_due

    async def decide(self, *, now: datetime) -> Cut:
        """Decide on one batch of what is due."""
        await self.write_ends()
        state, acting = self.state, self.acting
        returned = [(look, round_) for look, round_ in acting.returned(self.epochs) if self._is_as_seen(look)]
        views = frozenset(deciding_views(self._program, self.readiness.views))
        concluded = {look.facts.name for look, _ in returned}

        def is_meant(wake: PendingWake) -> bool:
            level = wake.view, wake.parent
            if wake.view not in views or level in acting or level in concluded:
                return False
            return not self._is_early(wake, now)

        wakes = wakes_in_turn(state.wakes.due(now, is_meant, BATCH))
        looks = await self._look(wakes, now) if wakes else []
        acted = [*returned, *await acting.act(looks, self.epochs)]
        acted = await self._with_rows(acted)
        batch = [conclude(look, round_, now) for look, round_ in acted]
        held = await self._commit(batch)
        found = {look.facts.name for look in looks}
        for wake in wakes:
            if (wake.view, wake.parent) not in found:
                state.wakes.forget((wake.view, wake.parent))
        return Cut(len(wakes) == BATCH, held, now, retried=len(batch) - len(held), has_woken=bool(held))

    async def write_ends(self) -> None:
        """Tell SQL what folded records have ended."""
        ends = self.state.ends
        if not ends:
            return
        async with self._database.transaction(durable=False) as connection:
            await guard(connection, self._scope, self.epochs)
            made = await write_ends(connection, self._scope, ends)
        self.state.ends = Ends()
        self.state.levels |= {(row.view, row.parent): row for row in made}

    async def _look(self, wakes: Sequence[PendingWake], now: datetime) -> list[Outlook]:
        """Look at the levels, and call the views that may see something else."""
        state, named = self.state, [(wake.view, wake.parent) for wake in wakes]
        async with self._database.reading() as connection:
            intents = await stored.read_intents_of(connection, self._scope, named)
            unknown = [level for level in named if level not in state.levels]
            rounds = await stored.read_last_rounds(connection, self._scope, unknown)
        looks: list[Outlook] = []
        for wake in wakes:
            level = wake.view, wake.parent
            facts = self._facts(wake, intents.get(level, ()), rounds, now)
            if facts is None:
                continue
            evaluation: Evaluation | None = None
            if facts.needs_evaluation:
                evaluation = Evaluation(
                    facts, {}, namespaces=self.readiness.namespaces, redactor=self._redactor, memory=self
                )
                evaluation.call()
            look = Outlook(facts, evaluation.seen if evaluation is not None else None)
            self.calls.take(look)
            looks.append(look)
        return looks

    def _facts(
        self,
        wake: PendingWake,
        intents: Sequence[tuple[str, OpenIntent]],
        rounds: Mapping[tuple[str, str, str], int],
        now: datetime,
    ) -> Facts | None:
        """The facts of a level; None: its parent is gone, or not the view's."""
        state, program, level = self.state, self._program, (wake.view, wake.parent)
        view, parent, held = program.views[wake.view], state.objects.get(wake.parent), state.levels.get(level)
        identity = parent_inputs(view, parent.body, held.looked_at if held else None) if parent else None
        if parent is None or identity is None:
            return None
        row = level_before(wake, parent, held, rounds.get((*level, parent.uid), 0))
        uid = row.parent_uid if held is None else held.parent_uid
        places = state.reads.get(level, frozenset()) if program.reads_elsewhere(view) else frozenset[IndexKey]()
        facts = Facts(
            wake=wake,
            view=view,
            parent=parent,
            before=row,
            intents=[self._with_target(intent) for of, intent in intents if of == uid],
            inputs=identity,
            reads=row.reads,
            versions=digest_of_versions({place: self.version(place) for place in places}),
            dependencies=places,
            standings=standings(program, program.siblings_of(view), parent, state.levels),
            now=now,
            folded=tuple(sequence for _, sequence in sorted(state.folded_to.items())),
            longest=program.max_backoff,
        )
        handler = view.handler
        is_as_read = facts.versions == row.versions and not handler.reads_levels and not handler.stands_on
        if is_as_read or facts.is_put_off:
            return facts
        reads = digest_of({place: self.bucket(place) for place in places}, sight(view, parent.uid, row.desired))
        return replace(facts, reads=digest_with(reads, facts.standings))

    def _with_target(self, intent: OpenIntent) -> OpenIntent:
        held, gone = self.state.objects.get(intent.target), self.state.tombstones.get(intent.target)
        intent = replace(
            intent,
            held_uid=held.uid if held else None,
            held_version=held.version if held else None,
            held_is_deleting=held.is_deleting if held else None,
            held_manager=(held.manager or "") if held else "",
            buried_version=gone.version if gone else None,
        )
        return as_watched(intent, self._program, self.readiness.namespaces)

    def version(self, place: IndexKey) -> int:
        """The record that changed a key last; -1: none did."""
        return self.state.buckets.versions.get(place, -1)

    def bucket(self, place: IndexKey) -> Bucket:
        """What is under a key, of levels too."""
        if not is_of_levels(place):
            return self.state.buckets.get(place)
        parent = self.state.objects.get(parent_at(place))
        if parent is None:
            return Bucket(self.version(place), ())
        views = self._program.standing_on(place[0].partition("/")[0], parent.resource)
        return Bucket(self.version(place), encoded(standings(self._program, views, parent, self.state.levels)))

    def whole(self, index: str) -> WholeIndex:
        """Every bucket of an index."""
        return self.state.buckets.whole(index, self._scope.partitions)

    def _is_early(self, wake: PendingWake, now: datetime) -> bool:
        """Tell whether a level waits for others that are due: those of its parent that it stands on, or looked up."""
        view, wakes = self._program.views[wake.view], self.state.wakes
        if wakes.are_due([(each.name, wake.parent) for each in self._program.siblings_of(view)], now):
            return True
        looked_up = self._program.lookups_of(view)
        if not looked_up:
            return False
        parents = map(parent_at, filter(is_of_levels, self.state.reads.get((wake.view, wake.parent), ())))
        due = wakes.are_due([(each.name, parent) for parent in parents for each in looked_up], now)
        return any(cause <= wake.cause for cause in due.values())

    def _is_as_seen(self, look: Outlook) -> bool:
        wake, parent = self.state.wakes.held.get(look.facts.name), self.state.objects.get(look.facts.name[1])
        return is_as_seen(look, Asker(wake.generation, parent) if wake is not None and parent is not None else None)

    async def _with_rows(self, acted: Sequence[Acted]) -> list[Acted]:
        """The rounds with the rows of their intents, compared with what is held of the targets."""
        objects = self.state.objects
        targets = {name: objects[name] for name in target_names(acted) if name in objects}
        applied: Mapping[str, bytes] = {}
        if with_applied := [name for name in target_names(acted, verb="apply") if name in targets]:
            async with self._database.reading() as connection:
                applied = await stored.read_last_applied(connection, self._scope, with_applied)
        calls = {place: self.bucket(place) for place in places_of_calls(acted)}
        identity = (self._scope.cluster, self._scope.application)
        is_shown = partial(is_watched, self._program, self.readiness.namespaces)

        def completed(look: Outlook, round_: Round) -> Round:
            called = last_called(look, round_, calls)
            return with_rows(look, round_, identity, targets, applied, is_shown, called=called, redactor=self._redactor)

        return [(look, round_ and completed(look, round_)) for look, round_ in acted]

    async def _commit(self, batch: Sequence[Decided]) -> Sequence[Decided]:
        """Write the decisions in one transaction, and take those that hold."""
        if not batch:
            return ()
        async with self._database.transaction(durable=False) as connection:
            await guard(connection, self._scope, self.epochs)
            written = await write_held(connection, self._scope, batch, self._program.fingerprint)
        asked = woken(self._program, written.held)
        for decided in written.held:
            self.state.take(decided)
        self.state.tell(told(self._program, written.held), asked)
        self.state.ask(asked)
        return written.held
