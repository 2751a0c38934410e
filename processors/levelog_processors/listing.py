"""Lists of a resource that begin and end, as a partition sees them; those of two ingesters interleave."""

import msgspec
from msgspec.structs import replace

from levelog.records import SyncFinished, SyncStarted
from levelog.succession import with_begun
from levelog_store.rows import SyncRow


def begin(row: SyncRow, record: SyncStarted, sequence: int) -> SyncRow:
    """Note that a list began."""
    namespaces = ",".join(record.namespaces)
    return replace(
        row,
        unfinished=_text(with_begun(_unfinished(row), record.sync_id, sequence)),
        started_sequence=sequence,
        # Other namespaces are other inputs: nothing is known of them before this list is complete.
        finished_sequence=row.finished_sequence if row.namespaces == namespaces else 0,
        namespaces=namespaces,
        heard_at=record.time,
    )


def finish(row: SyncRow, record: SyncFinished, sequence: int) -> SyncRow:
    """Note that a list ended; what others began goes on."""
    others = {sync_id: begun for sync_id, begun in _unfinished(row).items() if sync_id != record.sync_id}
    return replace(
        row,
        unfinished=_text(others),
        finished_sequence=sequence,
        namespaces=",".join(record.namespaces),
        version=max(row.version, record.version),
        heard_at=record.time,
        error="",
    )


def _unfinished(row: SyncRow) -> dict[str, int]:
    return msgspec.json.decode(row.unfinished, type=dict[str, int])


def _text(begun: dict[str, int]) -> str:
    return msgspec.json.encode(begun).decode()
