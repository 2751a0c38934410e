"""What a State shows of levels: to views, to whoever decides on them, and of what they wait for. It changes nothing."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from levelog.levels import LevelStatus
from levelog_processors.bound import BoundView
from levelog_processors.decide.facts import Facts, Outlook, digest_with, level_before
from levelog_processors.decide.levelstatuses import encoded, level_statuses
from levelog_processors.decide.lookups import digest_of, digest_of_versions, sight
from levelog_processors.decide.omissions import lacking
from levelog_processors.decide.readiness import as_watched
from levelog_processors.guard import parent_inputs
from levelog_processors.program import Program
from levelog_processors.state.state import State
from levelog_store.decide.decisions import OpenIntent, PendingWake
from levelog_store.decide.inputreads import SqlIntent
from levelog_store.owners.handlers import is_outdated
from levelog_store.rows import (
    Bucket,
    IndexKey,
    LevelRow,
    StoredObject,
    ViewParent,
    WholeIndex,
    is_of_levels,
    parent_at,
    shelf_at,
)


class StateReader(Struct, frozen=True):
    """Reads a State, for one batch."""

    program: Program
    state: State
    namespaces: Mapping[str, tuple[str, ...]]
    """Watched namespaces, by resource."""

    def facts(
        self,
        wake: PendingWake,
        intents: Sequence[SqlIntent],
        rounds: Mapping[tuple[str, str, str], int],
        now: datetime,
    ) -> Facts | None:
        """The facts of a level; None: its parent is gone, or not the view's."""
        state, program, level = self.state, self.program, (wake.view, wake.parent)
        view, parent, stored = program.views[wake.view], state.objects.get(wake.parent), state.levels.get(level)
        identity = parent_inputs(view, parent.body, stored.fields_read if stored else None) if parent else None
        if parent is None or identity is None:
            return None
        row = level_before(wake, parent, stored, rounds.get((*level, parent.uid), 0))
        places = self._places(view, level)
        facts = Facts(
            wake=wake,
            view=view,
            parent=parent,
            before=row,
            intents=self._intents(intents, row.parent_uid if stored is None else stored.parent_uid),
            inputs=identity,
            reads_digest=row.reads_digest,
            versions_digest=digest_of_versions({place: self.version(place) for place in places}),
            dependencies=places,
            level_statuses=self.statuses(view, parent),
            now=now,
            lacks=lacking(view, state.buckets, places),
            folded=(max(state.folded_to.values()),) * len(state.folded_to),
            longest=program.max_backoff,
        )
        handler = view.handler
        is_as_read = facts.versions_digest == row.versions_digest and not handler.reads_levels and not handler.stands_on
        if is_as_read or facts.is_put_off:
            return facts
        return replace(facts, reads_digest=self.reads_of(view, parent, row, facts.level_statuses))

    def _intents(self, told: Sequence[SqlIntent], uid: str) -> list[OpenIntent]:
        """The intents for a parent of this uid, with what is known now of what they have led to."""
        known = self.state.ends.applied_to(each for each in told if each.uid == uid)
        return [self.with_target(intent) for intent in known]

    def with_intents(self, look: Outlook, told: Sequence[SqlIntent]) -> Outlook:
        """A look at a level with its last intents, if there are some."""
        if not told:
            return look
        intents = self._intents(told, look.facts.before.parent_uid)
        return Outlook(replace(look.facts, intents=intents), look.seen)

    def _places(self, view: BoundView, level: ViewParent) -> frozenset[IndexKey]:
        return self.state.reads.get(level, frozenset()) if self.program.reads_elsewhere(view) else frozenset()

    def statuses(self, view: BoundView, parent: StoredObject) -> Mapping[str, LevelStatus]:
        """How the levels of a parent stand that a view is given."""
        return level_statuses(self.program, self.program.siblings_of(view), parent, self.state.levels)

    def reads_of(
        self, view: BoundView, parent: StoredObject, row: LevelRow, statuses: Mapping[str, LevelStatus]
    ) -> str:
        """Digest of what a level sees elsewhere now, with the `statuses` that its view is given."""
        places = self._places(view, (view.name, parent.object))
        found = digest_of({place: self.bucket(place) for place in places}, sight(view, parent.uid, row.desired))
        return digest_with(found, statuses)

    def with_target(self, intent: OpenIntent) -> OpenIntent:
        """The intent with what is known of its target now, and whether that is watched."""
        return as_watched(self.state.with_target(intent), self.program, self.namespaces)

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
        views = self.program.levels_on(shelf_at(place), parent.resource)
        return Bucket(self.version(place), encoded(level_statuses(self.program, views, parent, self.state.levels)))

    def whole(self, index: str) -> WholeIndex:
        """Every bucket of an index."""
        return self.state.buckets.whole(index, self.state.partitions)

    def is_early(self, wake: PendingWake, now: datetime) -> bool:
        """Tell whether a level waits for others: those of its parent that it stands on and that are due, or looked up.

        It waits for those which changed code has not decided on, too, whichever process does.
        """
        view, wakes, state = self.program.views[wake.view], self.state.wakes, self.state
        if wakes.are_due([(each.name, wake.parent) for each in self.program.siblings_of(view)], now):
            return True
        looked_up = self.program.lookups_of(view)
        if not looked_up:
            return False
        parents = map(parent_at, filter(is_of_levels, state.reads.get((wake.view, wake.parent), ())))
        others = [(each.name, parent) for parent in parents if parent in state.objects for each in looked_up]
        if any(is_outdated(state.levels[level]) for level in others if level in state.levels):
            return True
        due = wakes.are_due(others, now)
        return any(cause <= wake.cause or level in state.outdated for level, cause in due.items())

    def is_as_seen(self, look: Outlook) -> bool:
        """Tell whether no wakeup came since, and the view would see the same in the parent."""
        facts, seen = look.facts, look.seen
        wake, parent = self.state.wakes.pending.get(facts.name), self.state.objects.get(facts.name[1])
        if wake is None or parent is None or seen is None:
            return False
        if wake.generation != facts.wake.generation or parent.uid != facts.parent.uid:
            return False
        return parent_inputs(facts.view, parent.body, seen.fields_read or facts.before.fields_read) == seen.inputs
