"""Objects in the fold: the state that a record gives of one, and the newest record of each in a batch."""

from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen, ObjectUnreadable, Unreadable, head_of
from levelog_store.rows import StoredObject


def unreadable(record: ObjectSeen | ObjectDeleted) -> str:
    """Why a body is not the JSON of an object; empty if it is. The body of a deletion does not matter."""
    if isinstance(record, ObjectDeleted):
        return ""
    try:
        record.body.decode()
        head_of(record.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        text = f"{error.reason} (byte {error.start})" if isinstance(error, UnicodeDecodeError) else str(error)
        return f"not the JSON of an object: {text}"
    return ""


def stored(name: str, record: ObjectSeen | ObjectDeleted, logged: LoggedRecord) -> StoredObject:
    """The row of an object as a record shows it; its body can be read."""
    return StoredObject(
        object=name,
        partition=logged.partition,
        resource=str(record.key.group_resource),
        namespace=record.key.namespace,
        uid=record.uid,
        version=record.version,
        sequence=logged.sequence,
        is_deleting=head_of(record.body).metadata.deletion_timestamp is not None,
        body=record.body,
        recorded_at=record.time,
        manager=record.written.manager or None,
    )


def deleted(record: ObjectSeen | ObjectDeleted, logged: LoggedRecord) -> StoredObject | None:
    """The row that stands for an object from its end on; None if its last body cannot be read."""
    key = record.key.deleted(record.uid)
    try:
        row = stored(str(key), record, logged)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return replace(row, resource=str(key.group_resource), is_deleting=False, manager=None)


class Latest(Struct):
    """The newest record of one object in a batch."""

    record: ObjectSeen | ObjectDeleted
    logged: LoggedRecord
    """The same, or a later one that repeats it."""
    now: datetime | None
    """Time of the partition at that record."""
    sequence: int
    """Of the record, which changed the object."""
    before: "Latest | None"
    """The one of the batch that it took the place of."""

    def story(self) -> "list[Latest]":
        """The records of the batch that changed the object, oldest first."""
        story: list[Latest] = [self]
        while (before := story[-1].before) is not None:
            story.append(before)
        return story[::-1]

    @property
    def causes(self) -> tuple[int, ...]:
        """Sequences of these."""
        if self.before is None:
            return (self.sequence,)
        return tuple(each.sequence for each in self.story())

    @property
    def is_deletion(self) -> bool:
        """Tell whether the object is gone by this record."""
        return isinstance(self.record, ObjectDeleted)


def place_of(record: Unreadable | ObjectUnreadable) -> str:
    """The name to show for an unreadable record: the object, or the place in the log."""
    if record.key is not None:
        return str(record.key)
    return record.subject if isinstance(record, Unreadable) else str(record.resource)
