"""Records: the content of a message in the log, and which records of an object count.

Object records are in the past tense of what the API reported; control records tell about the reading itself. An object
too large for a message is recorded by its metadata, size and hash, and read by nobody.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from levelog_base.errors import ObjectTooLarge
from levelog_base.wire.objects import MAX_VERSION, GroupResource, ObjectKey, Partition, Sequence, Uid, Version
from levelog_base.wire.projection import Applied

Origin: TypeAlias = Literal["list", "watch"]
_Version: TypeAlias = Annotated[Version, Meta(ge=0, le=MAX_VERSION)]
_Number: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_VERSION)]
_Count: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]

Outcome: TypeAlias = Literal["written", "unchanged", "gone", "conflict", "failed"]
"""`conflict`: refused because the target had changed, the next round decides anew; `failed`: refused for good."""


_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def is_traceparent(text: object) -> bool:
    """Whether it names a span as https://www.w3.org/TR/trace-context/ has it."""
    return isinstance(text, str) and _TRACEPARENT.fullmatch(text) is not None


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
    traceparent: str = ""
    """Trace that it comes from, as a source says; empty: none that is known."""
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
    """Namespaces that are listed and watched, sorted; none for all."""
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


class HistoryReverted(Struct, frozen=True, kw_only=True):
    """The API server is at a lower version than the log has seen of a resource, as after a restore of etcd.

    Versions before this record and after it do not compare. A list is next, and tells what there is.
    """

    resource: GroupResource
    since: _Version
    """The highest version that was seen before."""
    version: _Version
    """Where the API server is now."""
    time: datetime


class BookmarkNoted(Struct, frozen=True, kw_only=True):
    """The watch of a resource has seen everything up to `version`."""

    resource: GroupResource
    api_version: str = ""
    """Version in which it is watched."""
    version: _Version
    time: datetime


class CallNoted(Struct, frozen=True, kw_only=True):
    """An effect that took place."""

    name: str = ""
    request: Any
    """As JSON says it, decoded; the same holds for the result."""
    result: Any


class PatchNoted(Struct, frozen=True, kw_only=True):
    """A write of its parent that was part of a call."""

    verb: str
    outcome: Outcome
    target_version: _Number = 0


class ContactLost(Struct, frozen=True, kw_only=True):
    """The watch or source of a resource fails: what the log has of it may be old, until a bookmark or a list comes."""

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
    outcome: Outcome
    target_uid: str = ""
    target_version: _Number = 0
    """resourceVersion that the API answered; 0 where it answered none."""
    error: str = ""
    answer: int = 0
    """HTTP status of the last answer to the write; 0: none came, and the target was looked at.

    422 stands for a 500 that refuses what was sent.
    """
    attempts: _Count = 1
    manager: str = ""
    """Field manager that wrote."""
    process: str = ""
    """Actuator that carried it out: host, process id, and a name of its own."""
    applied: Applied | None = None
    """What the server made of an applied manifest, where the intent asks for it."""
    call: CallNoted | None = None
    """What an effect was asked and returned."""
    patches: tuple[PatchNoted, ...] = ()
    """What was written with the call."""
    called_at: datetime | None = None
    """When, if the record repeats what an older one said of a call, so that the log does not forget it."""
    time: datetime

    @property
    def state(self) -> Literal["written", "settled", "failed"]:
        """State of the intent whose receipt this is; after a conflict too until the log shows what the actuator saw."""
        if self.outcome == "failed":
            return "failed"
        return "settled" if self.verb == "event" else "written"  # no level waits for Events

    @property
    def is_repeated(self) -> bool:
        """It tells again what an older receipt told, so that the log does not forget it: nothing has happened."""
        return self.called_at is not None


class TargetObserved(Struct, frozen=True, kw_only=True):
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


AboutResource: TypeAlias = (
    SyncStarted | SyncFinished | GapNoted | HistoryReverted | BookmarkNoted | ContactLost | ObjectUnreadable
)
ControlRecord: TypeAlias = AboutResource | ReceiptNoted | TargetObserved
Record: TypeAlias = ObjectSeen | ObjectDeleted | ControlRecord | Unreadable


class LoggedRecord(Struct, frozen=True, kw_only=True):
    """A record with its place in the log."""

    sequence: Sequence
    partition: Partition
    record_id: str
    record: Record


_LEFT_OUT: Final = "levelog/left-out"
"""First member of a body that lacks the rest; what the API server sends begins with apiVersion or kind."""
_BEGINNING: Final = msgspec.json.encode({_LEFT_OUT: 0})[:-2]
_TIMES: Final = ("creationTimestamp", "deletionTimestamp")
_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion", "generation", *_TIMES)
_BELONGINGS: Final = ("ownerReferences", "finalizers", "labels", "annotations")


class LeftOut(Struct, frozen=True, kw_only=True):
    """What is known of the rest of an object that is too large."""

    reason: str
    bytes: int
    """Size of the object as it would be recorded."""
    sha256: str
    """Digest of the object as it would be recorded, so that a change of it can be seen."""


def only_metadata(body: bytes, reason: str, *, is_least: bool = False) -> bytes:
    """The recorded form of an object that is too large: identity, owners, and why the rest is missing.

    `is_least` keeps only the identity, if even the metadata are too large.
    """
    given: dict[str, Any] = msgspec.json.decode(body)
    kept = _IDENTITY if is_least else (*_IDENTITY, *_BELONGINGS)
    return msgspec.json.encode(
        {
            _LEFT_OUT: LeftOut(reason=reason, bytes=len(body), sha256=sha256(body).hexdigest()),
            **{name: given[name] for name in ("apiVersion", "kind") if name in given},
            "metadata": {name: given["metadata"][name] for name in kept if name in given["metadata"]},
        }
    )


def refuse_left_out(body: bytes) -> None:
    """Raises ObjectTooLarge, naming object and size, if the body is what stands for one that was too large."""
    if body.startswith(_BEGINNING):
        refuse_remains(msgspec.json.decode(body))


def refuse_remains(found: Mapping[str, Any]) -> None:
    """Raises ObjectTooLarge as `refuse_left_out` does, of a decoded body."""
    if _LEFT_OUT not in found:
        return
    left_out, metadata = msgspec.convert(found[_LEFT_OUT], LeftOut), found["metadata"]
    name = "/".join(part for part in (metadata.get("namespace"), metadata.get("name")) if part)
    raise ObjectTooLarge(
        f"{name} has {left_out.bytes} bytes, which is more than the log takes; only its metadata are recorded "
        f"({left_out.reason})"
    )


class _Marks(Struct, frozen=True, rename="camel"):
    deletion_timestamp: str | None = None


class ObjectHead(Struct, frozen=True, rename="camel"):
    """What the fold needs of any object's body."""

    metadata: _Marks
    api_version: object = ""


_heads: Final = msgspec.json.Decoder(ObjectHead)


@lru_cache(maxsize=16)  # several steps ask for that of one body, one after the other
def head_of(body: bytes) -> ObjectHead:
    """The head of an object. Raises msgspec.DecodeError, UnicodeDecodeError, RecursionError if it has none."""
    return _heads.decode(body)


def api_version_of(record: Record) -> str:
    """The version of the API that a record tells of; empty where it does not say, or cannot be read."""
    match record:
        case SyncStarted() | SyncFinished() | BookmarkNoted():
            return record.api_version
        case ObjectSeen():
            try:
                version = head_of(record.body).api_version
            except (msgspec.MsgspecError, ValueError, RecursionError):
                return ""
            return version if isinstance(version, str) else ""
        case _:
            return ""


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
