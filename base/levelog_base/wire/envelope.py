"""The envelope: a record in the headers of a message (CloudEvents, NATS binary mode), an object's JSON as its payload.

Messages of earlier versions are turned, step by step, into the version written now. A field that has a default can be
added without a new version. Whatever else changes an envelope raises the version and leaves an upcaster here, and a
file of records as they were in `tests/unit/envelopes`.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from levelog_base.errors import ConfigurationError, RecordError
from levelog_base.wire.objects import ObjectKey, Uid, parse_version
from levelog_base.wire.records import (
    BookmarkNoted,
    CallNoted,
    ContactLost,
    ControlRecord,
    GapNoted,
    HistoryReverted,
    ObjectDeleted,
    ObjectSeen,
    ObjectUnreadable,
    ReceiptNoted,
    Record,
    SyncFinished,
    SyncStarted,
    TargetObserved,
    Written,
)

ENVELOPE_VERSION: Final = 1
"""What is written now."""
_ENVELOPE: Final = str(ENVELOPE_VERSION)

Message: TypeAlias = tuple[Mapping[str, str], bytes]
"""Headers and payload."""
Upcaster: TypeAlias = Callable[[Mapping[str, str], bytes], Message]
"""Makes a message of one version one of the next; raises KeyError or ValueError for what it cannot read."""

UPCASTERS: Final[Mapping[int, Upcaster]] = {}
"""Upcasters by the version that each reads."""

_CONTROL: Final[dict[str, type[ControlRecord]]] = {
    "levelog.sync.started": SyncStarted,
    "levelog.sync.finished": SyncFinished,
    "levelog.gap.noted": GapNoted,
    "levelog.history.reverted": HistoryReverted,
    "levelog.bookmark.noted": BookmarkNoted,
    "levelog.contact.lost": ContactLost,
    "levelog.receipt.noted": ReceiptNoted,
    "levelog.target.observed": TargetObserved,
    "levelog.object.unreadable": ObjectUnreadable,
}
_CONTROL_TYPE: Final = {cls: name for name, cls in _CONTROL.items()}
_SEEN: Final = "levelog.object.seen"
_DELETED: Final = "levelog.object.deleted"
_NUL: Final = rb"\u0000"
"""As JSON writes it, where no backslash stands before it."""
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
            if record.traceparent:
                headers["ce-traceparent"] = record.traceparent  # CloudEvents' extension for distributed tracing
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
            traceparent=headers.get("ce-traceparent", ""),
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
    may_hold_nul = _NUL in payload
    for name in record.__struct_fields__:
        value = getattr(record, name)
        # what was applied, asked and returned stays JSON, in which a NUL is escaped
        value = value.name if isinstance(value, CallNoted) else value
        if may_hold_nul and name != "applied" and _NUL in msgspec.json.encode(value).replace(rb"\\", b""):
            raise RecordError(f"{name} holds a NUL")
        if isinstance(value, ObjectKey) and not value.is_sound:
            raise RecordError(f"{name} does not name an object")
    return record


def _zoned(time: datetime) -> datetime:
    """The time in UTC, to which it may be too early or too late. Raises ValueError, OverflowError."""
    if time.tzinfo is None:
        raise ValueError(f"{time.isoformat()} is a time without a zone")
    return time.astimezone(UTC)


def refuse_unreadable(record: ControlRecord) -> None:
    """Raises RecordError for a record that `decode` would refuse, or that has no JSON form."""
    try:
        _control(_CONTROL_TYPE[type(record)], msgspec.json.encode(record))
    except (ValueError, OverflowError, RecursionError, msgspec.DecodeError) as error:
        raise RecordError(f"record cannot be written: {error}") from error


def can_read(version: str, *, upcasters: Mapping[int, Upcaster] = UPCASTERS, newest: int = ENVELOPE_VERSION) -> bool:
    """Tell whether messages of an envelope version, as headers and streams name it, can be turned into the newest."""
    return version in {str(newest), *map(str, upcasters)}


def upcast(
    headers: Mapping[str, str],
    payload: bytes,
    *,
    upcasters: Mapping[int, Upcaster] = UPCASTERS,
    newest: int = ENVELOPE_VERSION,
) -> Message:
    """The message in the newest version. Raises RecordError, with both versions, for one that cannot be read."""
    version = headers["levelog-envelope"]
    if not can_read(version, upcasters=upcasters, newest=newest):
        raise RecordError(f"envelope version {version!r} is not known; this levelog reads versions up to {newest}")
    for number in range(int(version), newest):
        headers, payload = upcasters[number](headers, payload)
    return headers, payload
