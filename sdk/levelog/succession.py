"""Which records of an object count: the newest one, in whatever order and however often they come.

The fold of the tables and the history of an object follow these rules, so that they agree.
"""

from collections.abc import Mapping
from typing import Final

from levelog.records import ObjectDeleted, ObjectSeen, SyncFinished

MOST_UNFINISHED: Final = 8
"""Lists of a resource remembered of which no end was seen: most of them broke off."""


def with_begun(unfinished: Mapping[str, int], sync_id: str, sequence: int) -> dict[str, int]:
    """Lists under way, by id the sequence at which each began, after one more began; those of two ingesters overlap."""
    newest = sorted(unfinished.items(), key=lambda begun: begun[1])[1 - MOST_UNFINISHED :]
    return {**dict(newest), sync_id: sequence}


def follows(record: ObjectSeen | ObjectDeleted, uid: str, version: int, *, is_gone: bool) -> bool:
    """Tell whether a record comes after the state (uid, version); versions of a resource grow over incarnations too.

    The deletion of what is held may bear the very version that is held. `is_gone`: the state is that of a deleted
    object, whose records up to that version are late.
    """
    if not is_gone and isinstance(record, ObjectDeleted) and record.uid == uid:
        return record.version >= version
    return record.version > version


def is_unlisted(finished: SyncFinished, *, begun: int, sequence: int, version: int, namespace: str) -> bool:
    """Tell whether a complete list that began at `begun` has left out an object of its resource and partition.

    The object's last record is `sequence`, which showed `version`. One that is newer than the list was made after it,
    unless it is in a namespace that is not watched any more.
    A list with objects that have no readable name leaves out nobody for certain.
    """
    if finished.has_unnamed:
        return False
    return sequence < begun and (version <= finished.version or not _is_covered(finished, namespace))


def swept_version(finished: SyncFinished, *, version: int, namespace: str) -> int:
    """Up to which version records of an object that a list has left out are late.

    What is not watched any more was not deleted: it comes back as it is when it is watched again.
    """
    return finished.version if _is_covered(finished, namespace) else version - 1


def _is_covered(finished: SyncFinished, namespace: str) -> bool:
    return not finished.namespaces or namespace in finished.namespaces
