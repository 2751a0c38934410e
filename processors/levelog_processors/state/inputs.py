"""What a fold asks for of State: what was there before."""

from collections.abc import Sequence

from levelog_base.wire.records import LoggedRecord
from levelog_processors.fold.entries import note_time
from levelog_processors.fold.receipts import levels_of_calls
from levelog_processors.state.contents import Contents
from levelog_store.fold.changes import PriorState
from levelog_store.rows import Entry, ViewParent


def prior_to(contents: Contents, part: Sequence[LoggedRecord]) -> PriorState:
    """What the fold of a part has to know."""
    return PriorState(
        objects=contents.objects,
        tombstones=contents.tombstones,
        entries_of=contents.buckets.of,
        levels=contents.levels,
        rounds=_rounds(contents, part),
        syncs=contents.syncs,
        api_versions=contents.api_versions,
        times=contents.times if contents.program.expires else {},
        expired=_expired(contents, part) if contents.program.expires else (),
    )


def _rounds(contents: Contents, part: Sequence[LoggedRecord]) -> dict[ViewParent, tuple[str, int]]:
    named = levels_of_calls(part, with_writes=contents.may_lack_levels)
    rows = ((level, contents.levels.get(level)) for level in named)
    unmade = ("", 0)
    return {
        level: (row.parent_uid, row.round) if row is not None else unmade
        for level, row in rows
        if row is not None or contents.may_lack_levels
    }


def _expired(contents: Contents, part: Sequence[LoggedRecord]) -> Sequence[tuple[str, Entry]]:
    times = dict(contents.times)
    for logged in part:
        note_time(times, logged)
    return contents.buckets.expired(max(times.values())) if times else ()
