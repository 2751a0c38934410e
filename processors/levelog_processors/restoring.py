"""Makes a State from what the tables hold, and has it catch up with changed code. Reads and writes no table itself."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from levelog_processors.decide.statereader import StateReader
from levelog_processors.fold.foldrules import Fold
from levelog_processors.program import Program
from levelog_processors.state.contents import ABSENT
from levelog_processors.state.outdated import as_left
from levelog_processors.state.state import State
from levelog_store.fold.changes import Changes, PriorState, Wake
from levelog_store.fold.statereads import StoredState
from levelog_store.owners.handlers import Backfill, Kind
from levelog_store.rows import WHOLE_INDEX, Entry, IndexKey, StoredObject, ViewParent, is_of_levels

PAGE: Final = 500
"""Objects that are computed anew at once."""


def restored(
    program: Program, application: str, stored: StoredState, leased: Collection[int], most_bodies: int | None
) -> State:
    """The State that the tables hold, for the process that holds these partitions."""
    state = State(program, application, len(stored.folded_to), most_bodies=most_bodies)
    state.leased = frozenset(leased)
    state.folded_to.update(stored.mirrored)
    state.times.update(stored.times)
    for row in stored.objects:
        state.put(row)
    state.tombstones = {row.object: row for row in stored.tombstones}
    state.unreadable = {(row.partition, row.place): row for row in stored.unreadable}
    state.syncs = {(row.partition, row.resource): row for row in stored.syncs}
    state.api_versions = {place: row.api_version for place, row in state.syncs.items() if row.api_version}
    for name, entry in stored.entries:
        state.buckets.put(name, entry)
    state.buckets.versions = dict(stored.keys)
    state.newest_of_levels = max((version for place, version in stored.keys.items() if is_of_levels(place)), default=0)
    unfinished: dict[tuple[str, int], Kind] = {(each.name, each.partition): each.kind for each in stored.unfinished}
    for known in stored.levels:
        level = known.view, known.parent
        state.levels[level] = as_left(known, unfinished)
        if state.levels[level] is not known and known.partition in state.leased:
            state.outdated.add(level, known.partition, known)
    reads: dict[ViewParent, set[IndexKey]] = {}
    for view, parent, index, key in stored.reads:
        reads.setdefault((view, parent), set()).add((index, key))
    for level, places in reads.items():
        state.set_reads(level, frozenset(places))
    for each in stored.awaited:
        level = each.view, each.parent
        state.writes.begin(each.key, each.target, level, each.partition, has_receipt=each.is_folded)
    wakes = (wake for wake in stored.wakes if wake.partition in state.leased)
    state.wakes.restore(wake for wake in wakes if wake.view in program.views)  # `notice` tells of others
    state.mark_written()
    return state


def left_behind(state: State, unfinished: Sequence[Backfill]) -> Iterator[tuple[Backfill, Sequence[str]]]:
    """Indices whose code has changed, with all their objects in pages; not those of code that was promoted since."""
    indices = (job for job in unfinished if job.name in state.program.indices)
    for job in sorted(indices, key=lambda job: (job.name, job.partition)):
        names = sorted(state.of_resources.get((job.partition, job.resource), ()))
        for first in range(0, len(names), PAGE):
            yield job, names[first : first + PAGE]


def index_anew(state: State, job: Backfill, rows: Sequence[StoredObject]) -> Changes:
    """What the changed code of an index gives for a page of objects."""

    def entries_of(name: str) -> Sequence[Entry]:
        return [entry for entry in state.buckets.of(name) if entry.index == job.name]

    prior = PriorState(objects=state.objects, entries_of=entries_of, levels=state.levels, times=state.times)
    fold = Fold(state.program, state.application, prior)
    return fold.index_anew(state.program.indices[job.name], rows, state.folded_to[job.partition])


def wake_outdated(state: State, unfinished: Sequence[Backfill]) -> None:
    """Ask for all levels that changed code has to decide on, also for those that there are not yet."""
    outdated = state.outdated
    for job in unfinished:
        if job.kind == "view" and job.partition in state.leased:
            for name in state.of_resources.get((job.partition, job.resource), ()):
                outdated.add((job.name, name), job.partition)
    are_there = ((level, at) for level, at in outdated.partition_of.items() if level[1] in state.objects)
    state.ask({level: Wake(at, (state.folded_to[at],)) for level, at in are_there})


def leave_out(state: State, level: ViewParent) -> None:
    """Take note that a level which is asked for is not the view's any more, or its parent is not there."""
    row = state.objects.get(level[1])
    if row is not None and level in state.outdated:  # whose filter has changed; else a record has told of it
        prior = PriorState(objects=state.objects, levels=state.levels)
        fold = Fold(state.program, state.application, prior)
        state.apply(fold.leave_out(state.program.views[level[0]], row, state.folded_to[row.partition]))
    state.end_outdated(level)
    state.wakes.forget(level)


def wake_missed(state_reader: StateReader, settled: Collection[ViewParent], at: datetime) -> None:
    """Ask for levels of leased partitions that see something else than when they were decided on.

    Also for those whose writes are `settled`. None of them may wait for a time after `at`. What was read then may be
    ahead of the tables, which are folded from other positions and in other batches now. So versions of keys tell
    nothing, and a whole index, of which nothing else is known, counts as changed.
    """
    state = state_reader.state
    for level, row in list(state.levels.items()):
        view, parent = state.program.views.get(level[0]), state.objects.get(level[1])
        if row.partition not in state.leased or view is None or parent is None or level in state.outdated:
            continue
        places = state.reads.get(level, frozenset())
        is_whole = any(key.startswith(WHOLE_INDEX) for _, key in places)
        is_unknown = parent.body == ABSENT and bool(state.program.siblings_of(view))
        is_changed = is_whole or (
            bool(places)
            and (
                is_unknown
                or state_reader.reads_of(view, parent, row, state_reader.statuses(view, parent)) != row.reads_digest
            )
        )
        if is_changed:
            state.levels[level] = replace(row, versions_digest="", reads_digest="" if is_whole else row.reads_digest)
        if not state.wakes.are_due([level], at) and (is_changed or level in settled or any(map(is_of_levels, places))):
            state.wakes.stir(row, max(row.cause, *(state.buckets.versions.get(place, -1) for place in places), 0))


def wake_from_ahead(state: State, at: datetime) -> None:
    """Ask for levels of leased partitions that were decided on later than `at`, unless something asks for them."""
    for level, row in state.levels.items():
        if row.partition not in state.leased or row.decided_at is None or row.decided_at <= at:
            continue
        if level[0] in state.program.views and not state.wakes.are_due([level], at):
            state.wakes.stir(row, row.cause)
