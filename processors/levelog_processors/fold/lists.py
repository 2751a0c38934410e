"""Lists of a resource as one partition sees them begin and finish, and which resources are stale."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from levelog_base.wire.objects import is_newer
from levelog_base.wire.records import (
    BookmarkNoted,
    ContactLost,
    GapNoted,
    HistoryReverted,
    LoggedRecord,
    SyncFinished,
    SyncStarted,
    with_begun,
)
from levelog_processors.keys import CONTACT, contact_key
from levelog_store.fold.changes import Changes
from levelog_store.rows import Entry, Input, SyncRow

Mark: TypeAlias = SyncStarted | GapNoted | HistoryReverted | BookmarkNoted | ContactLost
"""What a record says of the watch of a resource, but for the end of a list, which sweeps."""


def note_mark(changes: Changes, prior: Mapping[Input, SyncRow], logged: LoggedRecord, record: Mark) -> SyncRow | None:
    """Put what a mark says of its resource into the changes; returns what was known before it."""
    place: Input = (logged.partition, str(record.resource))
    before = changes.syncs.get(place) or prior.get(place)
    after = before or SyncRow(partition=logged.partition, resource=str(record.resource))
    match record:
        case SyncStarted() if is_newer(after.api_version, record.api_version):
            return before  # by a process that does not know yet of the newer version
        case SyncStarted():
            after = _begun(after, record, logged.sequence)
        case GapNoted():
            after = replace(after, gap_sequence=logged.sequence, error=record.reason)
        case HistoryReverted():
            # Lists under way are of the other history: their ends say nothing, and nothing is listed of this one.
            after = replace(after, unfinished="{}", finished_sequence=0, version=0)
        case BookmarkNoted():
            after = replace(after, heard_at=record.time, error="")
        case ContactLost():
            after = replace(after, error=record.error)
    note_sync(changes, before, after, logged.sequence)
    return before


def _begun(row: SyncRow, record: SyncStarted, sequence: int) -> SyncRow:
    namespaces = ",".join(record.namespaces)
    is_newer_version = is_newer(record.api_version, row.api_version)
    # Another version or other namespaces are other inputs: nothing is known of them before this list is complete.
    is_same = row.namespaces == namespaces and not is_newer_version
    return replace(
        row,
        unfinished=_text(with_begun({} if is_newer_version else row.begun, record.sync_id, sequence)),
        started_sequence=sequence,
        finished_sequence=row.finished_sequence if is_same else 0,
        namespaces=namespaces,
        api_version=record.api_version or row.api_version,
        heard_at=record.time,
    )


def finish(row: SyncRow, record: SyncFinished, sequence: int) -> SyncRow:
    """Record that a list ended; lists that other ingesters began continue."""
    others = {sync_id: begun for sync_id, begun in row.begun.items() if sync_id != record.sync_id}
    return replace(
        row,
        unfinished=_text(others),
        finished_sequence=sequence,
        namespaces=",".join(record.namespaces),
        version=max(row.version, record.version),
        heard_at=record.time,
        error="",
    )


def _text(begun: dict[str, int]) -> str:
    return msgspec.json.encode(begun).decode()


def note_sync(changes: Changes, before: SyncRow | None, after: SyncRow, sequence: int) -> None:
    """Add a list's new state to the changes; the index changes only if the resource becomes stale or fresh."""
    place: Input = (after.partition, after.resource)
    changes.syncs[place] = after
    was_stale = before is not None and before.is_stale
    if was_stale == after.is_stale:
        return
    index, key = contact_key(after.resource)
    changes.change_key((index, key), sequence, (sequence,))
    entry = Entry(index, key, after.partition, b"true") if after.is_stale else None
    changes.entries[index, key, CONTACT, after.partition] = entry
