"""What the fold itself reads in the body of an object."""

import msgspec
from msgspec import Struct

from levelog.records import LoggedRecord, ObjectDeleted, ObjectSeen
from levelog_store.rows import StoredObject


class _Deletion(Struct):
    class Metadata(Struct, rename="camel"):
        deletion_timestamp: str | None = None

    metadata: Metadata


_deletion = msgspec.json.Decoder(_Deletion)


def unreadable(record: ObjectSeen | ObjectDeleted) -> str:
    """Why a body is not the JSON of an object; empty if it is. Of what is gone the body does not matter."""
    if isinstance(record, ObjectDeleted):
        return ""
    try:
        record.body.decode()
        _deletion.decode(record.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        text = f"{error.reason} (byte {error.start})" if isinstance(error, UnicodeDecodeError) else str(error)
        return f"not the JSON of an object: {text}"
    return ""


def stored(name: str, record: ObjectSeen, logged: LoggedRecord) -> StoredObject:
    """The row of an object as a record shows it; its body can be read."""
    return StoredObject(
        object=name,
        partition=logged.partition,
        resource=str(record.key.group_resource),
        namespace=record.key.namespace,
        name=record.key.name,
        uid=record.uid,
        version=record.version,
        sequence=logged.sequence,
        is_deleting=_deletion.decode(record.body).metadata.deletion_timestamp is not None,
        body=record.body,
        recorded_at=record.time,
        manager=record.written.manager or None,
    )
