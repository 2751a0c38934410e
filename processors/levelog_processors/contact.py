"""The index of resources that are being listed again, which a read of `index.is_stale` depends on."""

from typing import Final

from levelog_processors.keys import canonical_key
from levelog_store.changes import Changes
from levelog_store.rows import Entry, IndexKey, Input, SyncRow

CONTACT: Final = "@contact"
"""Name of the index, and of the object whose entries it holds: one for each partition where a resource is stale."""


def contact_key(resource: str) -> IndexKey:
    """What stands for the contact with one resource, `pods`."""
    return CONTACT, canonical_key(resource)


def note_sync(changes: Changes, before: SyncRow | None, after: SyncRow, sequence: int) -> None:
    """Put a list's new state into the changes; the index changes only where a resource becomes stale, or is no more."""
    place: Input = (after.partition, after.resource)
    changes.syncs[place] = after
    was_stale = before is not None and before.is_stale
    if was_stale == after.is_stale:
        return
    index, key = contact_key(after.resource)
    changes.change_key((index, key), sequence, (sequence,))
    if after.is_stale:
        changes.entries_written.append((CONTACT, Entry(index, key, after.partition, b"true")))
    else:
        changes.entries_removed.append((index, key, CONTACT, after.partition))
