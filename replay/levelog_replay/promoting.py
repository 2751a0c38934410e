"""Other code takes over what the tables hold, in memory, by the rules of `levelog_store.owners.promotion`."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from levelog_store.decide.decisions import PendingWake
from levelog_store.decide.inputreads import KeptIntent
from levelog_store.fold.levelwrites import new_generation
from levelog_store.fold.statereads import StoredState
from levelog_store.owners.handlers import Backfill, Differences
from levelog_store.owners.promotion import CHANGED_CODE, NOTHING_KNOWN
from levelog_store.rows import LevelRow, ViewParent


def promoted(stored: StoredState, intents: Sequence[KeptIntent], found: Differences) -> StoredState:
    """What is left to begin with, and what has to be computed anew."""
    evaluated = {each.name for each in found.evaluated}
    levels = {(row.view, row.parent): row for row in stored.levels if row.view not in found.forgotten}
    for level, row in levels.items():
        if row.view in evaluated:
            levels[level] = replace(row, status="blocked", reason=CHANGED_CODE, **NOTHING_KNOWN)
    levels = {(row.view, row.parent): row for row in _with_last_rounds(stored, intents, evaluated)} | levels
    wakes = {(wake.view, wake.parent): wake for wake in stored.wakes if wake.view not in found.forgotten}
    for level in _open(levels, found.decided):
        row = levels[level] = replace(levels[level], decided_inputs="", attempts=0)
        wakes[level] = _asked_again(row, wakes.get(level))
    anew = [*found.indexed, *found.evaluated]
    gone = {*found.emptied, *found.forgotten, *(each.name for each in anew)}
    jobs = [
        Backfill(name=each.name, partition=n, kind=each.kind, resource=each.resource)
        for each in anew
        for n in stored.folded_to
    ]
    left = found.forgotten | evaluated
    return replace(
        stored,
        entries=[(name, entry) for name, entry in stored.entries if entry.index not in found.emptied],
        keys={place: version for place, version in stored.keys.items() if place[0] not in found.emptied},
        levels=[*levels.values()],
        reads=[read for read in stored.reads if read[0] not in left and read[2] not in found.emptied],
        wakes=[*wakes.values()],
        unfinished=[*(each for each in stored.unfinished if each.name not in gone), *jobs],
    )


def superseded(intents: Iterable[KeptIntent], found: Differences) -> Iterator[KeptIntent]:
    """The intents, where unclaimed ones of views that changed are withdrawn."""
    changed = found.forgotten | found.decided | {each.name for each in found.evaluated}
    for each in intents:
        intent = each.told.intent
        if intent.state == "pending" and intent.view in changed:
            intent = replace(intent, state="superseded")
        yield replace(each, told=replace(each.told, intent=intent))


def _with_last_rounds(stored: StoredState, intents: Iterable[KeptIntent], views: Collection[str]) -> Iterator[LevelRow]:
    """Levels at the last rounds of which there are intents, lest an idempotency key comes twice."""
    objects = {row.object: row for row in stored.objects}
    for each in sorted(intents, key=lambda each: each.round):
        intent = each.told.intent
        held = objects.get(intent.parent) if intent.view in views else None
        if held is not None and held.uid == each.told.uid:
            yield LevelRow(
                view=intent.view,
                parent=intent.parent,
                partition=held.partition,
                parent_uid=held.uid,
                status="blocked",
                reason=CHANGED_CODE,
                round=each.round,
            )


def _open(levels: Mapping[ViewParent, LevelRow], views: Collection[str]) -> list[ViewParent]:
    """Levels of these views that are not in sync."""
    rows = ((level, row) for level, row in levels.items() if level[0] in views and row.drift is not None)
    return [level for level, row in rows if row.status not in ("in_sync", "deleting")]


def _asked_again(row: LevelRow, known: PendingWake | None) -> PendingWake:
    generation = new_generation()
    if known is not None:
        return replace(known, generation=generation, due_at=None)
    return PendingWake(
        view=row.view, parent=row.parent, partition=row.partition, cause=row.cause, generation=generation, due_at=None
    )
