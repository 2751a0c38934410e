"""Makes the messages of one watched resource: objects, trimmed and redacted, and what concerns them all.

Cut out of an object's bytes are `metadata.managedFields`, of which manager and time of the newest entry are kept, and
kubectl's annotation last-applied-configuration, in which secrets hide. The API server writes compact JSON, so that a
member is found as its bytes; where it is not, as in JSON with white space, the object is decoded and encoded again.
It sends nothing: `feed.py` hands the messages to a lane of the log.
"""

import logging
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from levelog_base.errors import ConfigurationError, RecordError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.canonical import storable
from levelog_base.wire.objects import ObjectKey, Partition, Uid, Version, parse_version
from levelog_base.wire.records import (
    BookmarkNoted,
    GapNoted,
    HistoryReverted,
    ObjectDeleted,
    ObjectSeen,
    ObjectUnreadable,
    Origin,
    SyncFinished,
    SyncStarted,
    Written,
)
from levelog_base.wire.subjects import partition_of
from levelog_ingest.status import ResourceStatus, WatchedResource
from levelog_log.messages import MessageWriter
from levelog_log.transport.wire import Message

log = logging.getLogger(__name__)

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_LAST_APPLIED_BYTES: Final = LAST_APPLIED.encode()
_NOTHING: Final = Raw(b"")
MOST_NAME_CHARACTERS: Final = 253  # https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
_annotations: Final = msgspec.json.Decoder(dict[str, Raw])


class Trimmed(NamedTuple):
    """An object as it is recorded, with what stands in the envelope."""

    namespace: str
    name: str
    uid: Uid
    version: Version
    written: Written
    body: bytes


class _Name(Struct):
    name: str
    namespace: str = ""


class _Named(Struct):
    metadata: _Name


class _Metadata(_Name, rename="camel", kw_only=True):
    uid: str
    resource_version: str
    annotations: Raw = _NOTHING
    managed_fields: Raw = _NOTHING


class _Object(Struct):
    metadata: Raw
    kind: str = ""


class _ManagedFields(Struct):
    manager: str = ""
    time: str = ""


_objects: Final = msgspec.json.Decoder(_Object)
_named: Final = msgspec.json.Decoder(_Named)
_metadata: Final = msgspec.json.Decoder(_Metadata)
_managed_fields: Final = msgspec.json.Decoder(list[_ManagedFields] | None)


class Recorder:
    """Makes the messages of one watched resource: trimmed, redacted, and cut to their metadata if too large.

    An object that cannot be recorded at all leaves an `ObjectUnreadable`, and holds up nothing else.
    """

    def __init__(
        self,
        writer: MessageWriter,
        redactor: Redactor,
        status: ResourceStatus,
        application: str = "",
    ) -> None:
        self._writer = writer
        self._redactor = redactor
        self._status = status
        self._application = application
        self._resource = status.watched.resource
        self._unnamed = 0
        """Objects whose names cannot be read, since the last list began."""

    @property
    def _watched(self) -> WatchedResource:
        return self._status.watched

    def object_message(
        self, body: bytes, *, origin: Origin, is_deleted: bool = False, kind: str = ""
    ) -> tuple[Version | None, Message]:
        """The object's version, if it could be trimmed, and its message."""
        version: Version | None = None
        try:
            trimmed = trim(body, api_version=self._watched.api_version, kind=kind)
            version = trimmed.version
            record = (ObjectDeleted if is_deleted else ObjectSeen)(
                key=self._key(trimmed.namespace, trimmed.name),
                uid=trimmed.uid,
                version=version,
                origin=origin,
                time=_now(),
                written=trimmed.written,
                body=self._redactor.redact_body(self._resource, trimmed.body),
            )
            return version, self._writer.message(record, may_cut=True)
        except (RecordError, ConfigurationError) as error:  # the second: redaction has no key
            return version, self.unreadable(body, str(error))
        except Exception as error:  # whatever is wrong with one object must not hold up the others
            log.exception("an object cannot be recorded", extra={"resource": str(self._watched)})
            return version, self.unreadable(body, f"it cannot be recorded: {type(error).__name__}")

    def unreadable(self, body: bytes, error: str) -> Message:
        """The message for an object that cannot be recorded; `body` is empty for a line that cannot be read."""
        named = name_of(body)
        key = self._key(*named) if named is not None and is_recordable(*named) else None
        self._status.skipped += 1
        self._unnamed += named is None  # may be any that is held: the list sweeps none then; a bad name is never held
        log.error("object not recorded: %s", error, extra={"resource": str(self._watched), "object": str(key or "")})
        partition = Partition(0) if key is None else partition_of(key, self._writer.partitions)
        record = ObjectUnreadable(resource=self._resource, key=key, error=error, time=_now())
        return self._writer.message(record, partition)

    def list_started(self, sync_id: str) -> list[Message]:
        """A list begins, told to all partitions."""
        self._unnamed = 0
        return self._writer.to_all_partitions(
            SyncStarted(
                resource=self._resource,
                sync_id=sync_id,
                namespaces=self._watched.namespaces,
                api_version=self._watched.api_version,
                application=self._application,
                time=_now(),
            )
        )

    def list_finished(self, sync_id: str, version: Version) -> list[Message]:
        """A list is complete, told to all partitions."""
        return self._writer.to_all_partitions(
            SyncFinished(
                resource=self._resource,
                sync_id=sync_id,
                namespaces=self._watched.namespaces,
                api_version=self._watched.api_version,
                application=self._application,
                version=version,
                has_unnamed=self._unnamed > 0,
                time=_now(),
            )
        )

    def gap(self, since: Version, reason: str) -> list[Message]:
        """History is missing, told to all partitions."""
        return self._writer.to_all_partitions(
            GapNoted(resource=self._resource, reason=reason, since=since, time=_now())
        )

    def reverted(self, since: Version, version: Version) -> list[Message]:
        """The API server is at a lower version than was seen, told to all partitions."""
        return self._writer.to_all_partitions(
            HistoryReverted(resource=self._resource, since=since, version=version, time=_now())
        )

    def bookmark(self, version: Version) -> list[Message]:
        """The watch's position, told to all partitions: it moves the time of each on."""
        api_version = self._watched.api_version
        return self._writer.to_all_partitions(
            BookmarkNoted(resource=self._resource, api_version=api_version, version=version, time=_now())
        )

    def _key(self, namespace: str, name: str) -> ObjectKey:
        return ObjectKey(group=self._resource.group, resource=self._resource.resource, namespace=namespace, name=name)


def trim(body: bytes, *, api_version: str = "", kind: str = "") -> Trimmed:
    """Cut an object. `api_version` and `kind` are put in where it has no kind, as items of lists have none.

    Raises RecordError if it cannot be recorded; of the object's values, that quotes a wrong resourceVersion alone.
    """
    try:
        found = _objects.decode(body)
        before = bytes(found.metadata)
        metadata = _metadata.decode(before)
        if not metadata.name or not is_recordable(metadata.namespace, metadata.name):
            raise ValueError("the log does not take its name or namespace")  # noqa: TRY301 - told as all else
        written = _last_written(metadata.managed_fields)
        if "\0" in metadata.uid + written.at:
            raise ValueError("a NUL in its uid or the time of its writing")  # noqa: TRY301
        version = parse_version(metadata.resource_version)
        after = _cut_metadata(before, metadata)
        if after is None or (trimmed := _replace(body, before, after)) is None:
            trimmed = _encode_again(body)
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        raise RecordError(
            f"not an object that can be recorded: {_without_quotes(error)} ({len(body)} bytes)"
        ) from error
    if not found.kind and kind:
        head = msgspec.json.encode({"kind": kind, "apiVersion": api_version})
        trimmed = head[:-1] + b"," + trimmed.lstrip()[1:]
    return Trimmed(metadata.namespace, metadata.name, Uid(metadata.uid), version, written, trimmed)


def name_of(body: bytes) -> tuple[str, str] | None:
    """Namespace and name of an object that cannot be recorded; None if they cannot be read either."""
    try:
        named = _named.decode(body).metadata
    except (ValueError, RecursionError, msgspec.DecodeError):
        return None
    return (named.namespace, named.name) if named.name else None


def is_recordable(namespace: str, name: str) -> bool:
    """Tell whether objects of that name can be recorded: a Role's, for one, may be longer than the log takes."""
    return all(
        len(text) <= MOST_NAME_CHARACTERS and text.isprintable() and "/" not in text for text in (namespace, name)
    )


def _without_quotes(error: Exception) -> str:
    """The error without its quotes of the bytes, which may be a secret."""
    return f"{error.reason} (byte {error.start})" if isinstance(error, UnicodeDecodeError) else str(error)


def _last_written(managed_fields: Raw) -> Written:
    if not managed_fields:
        return Written()
    entries = _managed_fields.decode(managed_fields) or ()
    # Times are whole seconds. Entries of applies stand first: a status that follows within the second is last.
    newest = max(reversed(entries), key=lambda entry: entry.time, default=_ManagedFields())
    return Written(manager=storable(newest.manager), at=newest.time)


def _cut_metadata(raw: bytes, metadata: _Metadata) -> bytes | None:
    """The metadata without the parts to cut; None if these cannot be found as bytes."""
    kept: bytes | None = raw
    if metadata.managed_fields:
        kept = _cut(raw, b"managedFields", bytes(metadata.managed_fields))
    if kept is not None and metadata.annotations and _LAST_APPLIED_BYTES in bytes(metadata.annotations):
        before = bytes(metadata.annotations)
        value = _annotations.decode(before).get(LAST_APPLIED)
        if value is not None:
            after = _cut(before, _LAST_APPLIED_BYTES, bytes(value))
            kept = None if after is None else _replace(kept, before, after, b'"annotations":')
    return kept


def _cut(container: bytes, name: bytes, value: bytes) -> bytes | None:
    """An object without one of its members, and without the comma at the member's side."""
    member = b'"%b":%b' % (name, value)
    start = container.find(member)
    if start < 0:
        return None
    end = start + len(member)
    if container[end : end + 1] == b",":
        end += 1
    elif container[start - 1 : start] == b",":
        start -= 1
    return container[:start] + container[end:]


def _replace(container: bytes, before: bytes, after: bytes, label: bytes = b'"metadata":') -> bytes | None:
    # The first place is the right one: no other metadata has this uid, and metadata have no other annotations.
    start = container.find(label + before)
    if start < 0:
        return None
    start += len(label)
    return container[:start] + after + container[start + len(before) :]


def _encode_again(body: bytes) -> bytes:
    given: dict[str, Any] = msgspec.json.decode(body)
    metadata = given["metadata"]
    metadata.pop("managedFields", None)
    if isinstance(annotations := metadata.get("annotations"), dict):
        annotations.pop(LAST_APPLIED, None)
    return msgspec.json.encode(given)


def _now() -> datetime:
    return datetime.now(UTC)
