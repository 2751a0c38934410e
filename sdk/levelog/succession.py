"""Which records of an object count: the newest one, in whatever order and however often they come.

The fold of the tables and the history of an object follow these two rules, so that they agree.
"""

from levelog.records import ObjectDeleted, ObjectSeen, SyncFinished


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

    The object's last record is `sequence`, which showed `version`. One that is newer than the list was made after it.
    A list with objects that have no readable name leaves out nobody for certain.
    """
    if finished.has_unnamed:
        return False
    return sequence < begun and version <= finished.version and finished.namespace in ("", namespace)
