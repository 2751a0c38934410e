"""Records of the log: an envelope in the headers (CloudEvents, NATS binary mode), the object's JSON as payload.

A record is what one message says. Object records are in the past tense of what the API reported; control records
tell about the reading itself.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from levelog.errors import ConfigurationError, RecordError
from levelog.objects import MAX_VERSION, GroupResource, ObjectKey, Partition, Sequence, Uid, Version, parse_version
from levelog.projection import Applied
from levelog.upcasting import ENVELOPE_VERSION, upcast

_ENVELOPE: Final = str(ENVELOPE_VERSION)
Origin: TypeAlias = Literal["list", "watch"]
_Version: TypeAlias = Annotated[Version, Meta(ge=0, le=MAX_VERSION)]
_Number: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_VERSION)]
_Count: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]


class Written(Struct, frozen=True, kw_only=True):
    """Who wrote an object last, from the newest entry of its managedFields; empty where the API did not say."""

    manager: str = ""
    at: str = ""


class _ObjectRecord(Struct, frozen=True, kw_only=True):
    key: ObjectKey
    uid: Uid
    version: Version
    origin: Origin
    time: datetime
    written: Written = Written()
    body: bytes


class ObjectSeen(_ObjectRecord, frozen=True, kw_only=True):
    """An object existed in this version: listed, added or modified."""


class ObjectDeleted(_ObjectRecord, frozen=True, kw_only=True):
    """An object was deleted; the body is its last one, the version that of the deletion."""


class SyncStarted(Struct, frozen=True, kw_only=True):
    """A list of a resource began; written to every partition."""

    resource: GroupResource
    sync_id: str
    namespaces: tuple[str, ...] = ()
    """Those that are listed and watched, sorted; none for all."""
    api_version: str = ""
    """Version in which it is recorded, `apps/v1`."""
    application: str = ""
    """Whose ingest it is."""
    time: datetime


class SyncFinished(Struct, frozen=True, kw_only=True):
    """A list of a resource is complete as of `version`, the lowest of its parts; written to every partition."""

    resource: GroupResource
    sync_id: str
    namespaces: tuple[str, ...] = ()
    api_version: str = ""
    application: str = ""
    version: _Version
    has_unnamed: bool = False
    """It held objects whose names cannot be read: what it seems to leave out may be one of them, and is kept."""
    time: datetime


class GapNoted(Struct, frozen=True, kw_only=True):
    """History of a resource between two versions was never seen."""

    resource: GroupResource
    reason: str
    since: _Version
    time: datetime


class BookmarkNoted(Struct, frozen=True, kw_only=True):
    """The watch of a resource has seen everything up to `version`."""

    resource: GroupResource
    version: _Version
    time: datetime


class CallNoted(Struct, frozen=True, kw_only=True):
    """An effect that took place."""

    name: str = ""
    request: Any
    """As JSON says it, decoded; the same holds for the result."""
    result: Any


class ContactLost(Struct, frozen=True, kw_only=True):
    """Whoever tells about a resource fails: what is known of it may be old, until a bookmark or a list comes."""

    resource: GroupResource
    error: str
    time: datetime


class ReceiptNoted(Struct, frozen=True, kw_only=True):
    """What became of an intent, told to the partition of its parent."""

    application: str
    key: str
    """Idempotency key of the intent."""
    view: str
    """Operator and view, `webs/pods`."""
    parent: ObjectKey
    parent_uid: Uid
    round: _Count
    verb: str
    target: ObjectKey
    outcome: Literal["written", "unchanged", "gone", "conflict", "failed"]
    """`conflict`: refused because the target had changed, the next round decides anew; `failed`: refused for good."""
    target_uid: str = ""
    target_version: _Number = 0
    """resourceVersion that the API answered; 0 where it answered none."""
    error: str = ""
    answer: int = 0
    """HTTP status of the last answer to the write; 0: none came, and the target was looked at."""
    attempts: _Count = 1
    manager: str = ""
    """Field manager that wrote."""
    process: str = ""
    """Actuator that carried it out: host, process id, and a name of its own."""
    applied: Applied | None = None
    """What the server made of an applied manifest, where the intent asks for it."""
    call: CallNoted | None = None
    """What an effect was asked and returned."""
    time: datetime


class TargetSighted(Struct, frozen=True, kw_only=True):
    """What the API had of a target whose write the log had not shown for a while, told to the parent's partition."""

    application: str
    key: str
    """Idempotency key of the intent."""
    view: str
    parent: ObjectKey
    parent_uid: Uid
    target: ObjectKey
    target_uid: str = ""
    target_version: _Number = 0
    """resourceVersion of the target; 0: it was gone."""
    process: str = ""
    """Actuator that looked."""
    time: datetime


class ObjectUnreadable(Struct, frozen=True, kw_only=True):
    """The API sent an object that cannot be recorded: the log holds no other record of this version of it."""

    resource: GroupResource
    key: ObjectKey | None = None
    """None: not even its name can be read; it stands in partition 0 then."""
    error: str
    time: datetime


class Unreadable(Struct, frozen=True, kw_only=True):
    """A record that cannot be decoded; it blocks nothing but is shown."""

    error: str
    subject: str
    key: ObjectKey | None = None
    """The object that it speaks of; None for a control record."""
    time: datetime


Record: TypeAlias = (
    ObjectSeen
    | ObjectDeleted
    | SyncStarted
    | SyncFinished
    | GapNoted
    | BookmarkNoted
    | ContactLost
    | ReceiptNoted
    | TargetSighted
    | ObjectUnreadable
    | Unreadable
)
ControlRecord: TypeAlias = (
    SyncStarted
    | SyncFinished
    | GapNoted
    | BookmarkNoted
    | ContactLost
    | ReceiptNoted
    | TargetSighted
    | ObjectUnreadable
)


class LoggedRecord(Struct, frozen=True, kw_only=True):
    """A record with its place in the log."""

    sequence: Sequence
    partition: Partition
    record_id: str
    record: Record


_CONTROL: Final[dict[str, type[ControlRecord]]] = {
    "levelog.sync.started": SyncStarted,
    "levelog.sync.finished": SyncFinished,
    "levelog.gap.noted": GapNoted,
    "levelog.bookmark.noted": BookmarkNoted,
    "levelog.contact.lost": ContactLost,
    "levelog.receipt.noted": ReceiptNoted,
    "levelog.target.sighted": TargetSighted,
    "levelog.object.unreadable": ObjectUnreadable,
}
_CONTROL_TYPE: Final = {cls: name for name, cls in _CONTROL.items()}
_SEEN: Final = "levelog.object.seen"
_DELETED: Final = "levelog.object.deleted"
_DECODERS: Final = {name: msgspec.json.Decoder(cls) for name, cls in _CONTROL.items()}


def encode(
    record: ObjectSeen | ObjectDeleted | ControlRecord, *, record_id: str, source: str
) -> tuple[dict[str, str], bytes]:
    """Headers and payload of a record.

    `record_id` is unique in the log; `source` names the writer (`ingest`, `actuator`) as a URI reference.
    """
    headers = {
        "ce-specversion": "1.0",
        "ce-id": record_id,
        "ce-source": source,
        "ce-time": record.time.isoformat(),
        "levelog-envelope": _ENVELOPE,
    }
    match record:
        case ObjectSeen() | ObjectDeleted():
            headers["ce-type"] = _SEEN if isinstance(record, ObjectSeen) else _DELETED
            headers["ce-subject"] = str(record.key)
            headers["levelog-uid"] = record.uid
            headers["levelog-version"] = str(record.version)
            headers["levelog-origin"] = record.origin
            if record.written.manager:
                headers["levelog-manager"] = record.written.manager
                headers["levelog-written-at"] = record.written.at
            return headers, record.body
        case _:
            headers["ce-type"] = _CONTROL_TYPE[type(record)]
            return headers, msgspec.json.encode(record)


def decode(headers: Mapping[str, str], payload: bytes) -> Record:
    """The record that a message of this or an earlier envelope version holds.

    Raises RecordError, naming the header or field, if the envelope is not one that this version reads, or holds what
    SQL does not: a number of more than 64 bits, a time without a zone, a NUL.
    """
    try:
        if headers["levelog-envelope"] != _ENVELOPE:
            headers, payload = upcast(headers, payload)
        kind = headers["ce-type"]
        if kind not in (_SEEN, _DELETED):
            return _control(kind, payload)
        origin = headers["levelog-origin"]
        if "\0" in "".join(headers.values()):
            raise RecordError("a header holds a NUL")
        return (ObjectSeen if kind == _SEEN else ObjectDeleted)(
            key=ObjectKey.parse(headers["ce-subject"]),
            uid=Uid(headers["levelog-uid"]),
            version=parse_version(headers["levelog-version"]),
            origin="list" if origin == "list" else "watch",
            time=_zoned(datetime.fromisoformat(headers["ce-time"])),
            written=Written(manager=headers.get("levelog-manager", ""), at=headers.get("levelog-written-at", "")),
            body=payload,
        )
    except KeyError as error:
        raise RecordError(f"record without header {error}") from error
    except (ValueError, OverflowError, RecursionError, msgspec.DecodeError, ConfigurationError) as error:
        raise RecordError(f"record cannot be read: {error}") from error


def _control(kind: str, payload: bytes) -> ControlRecord:
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise RecordError(f"record type {kind!r} is not known")
    record: ControlRecord = decoder.decode(payload)
    _zoned(record.time)
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name != "applied" and "\0" in str(value):  # that stays JSON, in which a NUL is escaped
            raise RecordError(f"{name} holds a NUL")
        if isinstance(value, ObjectKey) and not value.is_sound:
            raise RecordError(f"{name} does not name an object")
    return record


def _zoned(time: datetime) -> datetime:
    """The time in UTC, to which it may be too early or too late. Raises ValueError, OverflowError."""
    if time.tzinfo is None:
        raise ValueError(f"{time.isoformat()} is a time without a zone")
    return time.astimezone(UTC)
