"""Other code takes over what the tables hold, in memory, by the rules of `levelog_store.owners.promotion`."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from levelog_store.decide.decisions import PendingWake
from levelog_store.decide.inputreads import KeptIntent
from levelog_store.fold.levelwrites import new_generation
from levelog_store.fold.statereads import StoredState
from levelog_store.owners.handlers import Backfill, Differences
from levelog_store.owners.promotion import CHANGED_CODE, NOTHING_KNOWN
from levelog_store.rows import LevelRow


def promoted(stored: StoredState, intents: Sequence[KeptIntent], found: Differences) -> StoredState:
    """What is left to begin with, and what has to be computed anew."""
    evaluated = {each.name for each in found.evaluated} - found.forgotten
    left, anew = found.forgotten | evaluated, [*found.indexed, *found.evaluated]
    levels = {(row.view, row.parent): row for row in _with_last_rounds(stored, intents) if row.view in evaluated}
    wakes = {(wake.view, wake.parent): wake for wake in stored.wakes if wake.view not in found.forgotten}
    for row in stored.levels:
        level = row.view, row.parent
        if row.view in evaluated:
            levels[level] = replace(row, status="blocked", reason=CHANGED_CODE, **NOTHING_KNOWN)
        elif row.view in found.decided and row.drift is not None and row.status not in ("in_sync", "deleting"):
            levels[level] = replace(row, decided_inputs="", attempts=0)
            fresh = PendingWake(
                view=row.view, parent=row.parent, partition=row.partition, cause=row.cause, generation=0, due_at=None
            )
            wakes[level] = replace(wakes.get(level, fresh), generation=new_generation(), due_at=None)
        elif row.view not in found.forgotten:
            levels[level] = row
    gone = {*found.emptied, *found.forgotten, *(each.name for each in anew)}
    unfinished = [each for each in stored.unfinished if each.name not in gone]
    for each in anew:
        unfinished += [
            Backfill(name=each.name, partition=partition, kind=each.kind, resource=each.resource)
            for partition in stored.folded_to
        ]
    return replace(
        stored,
        entries=[(name, entry) for name, entry in stored.entries if entry.index not in found.emptied],
        keys={place: version for place, version in stored.keys.items() if place[0] not in found.emptied},
        levels=[*levels.values()],
        reads=[read for read in stored.reads if read[0] not in left and read[2] not in found.emptied],
        wakes=[*wakes.values()],
        unfinished=unfinished,
    )


def _with_last_rounds(stored: StoredState, intents: Sequence[KeptIntent]) -> Iterator[LevelRow]:
    """Levels at the rounds of which there are intents, the last ones last, lest an idempotency key comes twice."""
    objects = {row.object: row for row in stored.objects}
    for each in sorted(intents, key=lambda each: each.round):
        held = objects.get(each.intent.parent)
        if held is not None and held.uid == each.uid:
            yield LevelRow(
                view=each.intent.view,
                parent=held.object,
                partition=held.partition,
                parent_uid=held.uid,
                status="blocked",
                reason=CHANGED_CODE,
                round=each.round,
            )


def superseded(intents: Iterable[KeptIntent], found: Differences) -> Iterator[KeptIntent]:
    """The intents, where unclaimed ones of views that changed are withdrawn."""
    changed = found.forgotten | found.decided | {each.name for each in found.evaluated}
    for each in intents:
        is_left = each.intent.state == "pending" and each.intent.view in changed
        yield replace(each, intent=replace(each.intent, state="superseded")) if is_left else each
