"""Makes the messages of one watched resource: objects, trimmed and redacted, and what concerns them all.

An object goes from here to the log; it is decoded only where it has to be. It calls no user's function, and sends
nothing: `feed.py` hands the messages to a lane of the log.
"""

import logging
from datetime import UTC, datetime

from msgspec.structs import replace

from levelog_base.errors import RecordError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import ObjectKey, Partition, Version
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
)
from levelog_base.wire.subjects import partition_of
from levelog_ingest.status import ResourceStatus, WatchedResource
from levelog_ingest.trimming import Trimmed, is_recordable, name_of, only_metadata, trim
from levelog_log.messages import MessageWriter, RecordTooLarge
from levelog_log.transport.wire import Message

log = logging.getLogger(__name__)


class Recorder:
    """Makes the messages of one watched resource: trimmed, redacted, checked for their size.

    An object that cannot be recorded is named in the log, and holds up nothing else.
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
        """Objects of the list under way whose names cannot be read."""

    @property
    def _watched(self) -> WatchedResource:
        return self._status.watched

    def object_message(
        self, body: bytes, *, origin: Origin, is_deleted: bool = False, kind: str = ""
    ) -> tuple[Version | None, Message]:
        """The object's message, and its version if that can be read."""
        version: Version | None = None
        try:
            trimmed = trim(body, api_version=self._watched.api_version, kind=kind)
            version = trimmed.version
            return version, self._seen(trimmed, origin, is_deleted=is_deleted)
        except RecordError as error:
            return version, self.unreadable(body, str(error))
        except Exception as error:  # whatever is wrong with one object must not hold up the others
            log.exception("an object cannot be recorded", extra={"resource": str(self._watched)})
            return version, self.unreadable(body, f"it cannot be recorded: {type(error).__name__}")

    def unreadable(self, body: bytes, error: str) -> Message:
        """The message for an object that cannot be recorded; without a body, for a line that names none."""
        named = name_of(body)
        key = self._key(*named) if named is not None and is_recordable(*named) else None
        self._status.skipped += 1
        self._unnamed += named is None  # one with a name that is never recorded is nobody whom a list may leave out
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
        """The watch's position, for all partitions: each has its own time."""
        api_version = self._watched.api_version
        return self._writer.to_all_partitions(
            BookmarkNoted(resource=self._resource, api_version=api_version, version=version, time=_now())
        )

    def _seen(self, trimmed: Trimmed, origin: Origin, *, is_deleted: bool) -> Message:
        record = (ObjectDeleted if is_deleted else ObjectSeen)(
            key=self._key(trimmed.namespace, trimmed.name),
            uid=trimmed.uid,
            version=trimmed.version,
            origin=origin,
            time=_now(),
            written=trimmed.written,
            body=self._redactor.redact_body(self._resource, trimmed.body),
        )
        try:
            return self._writer.message(record)
        except RecordTooLarge as error:
            log.warning("%s; only its metadata are recorded", error, extra={"object": str(record.key)})
            try:
                return self._writer.message(replace(record, body=only_metadata(record.body, str(error))))
            except RecordTooLarge:
                least = only_metadata(record.body, str(error), is_least=True)
                return self._writer.message(replace(record, body=least))

    def _key(self, namespace: str, name: str) -> ObjectKey:
        return ObjectKey(group=self._resource.group, resource=self._resource.resource, namespace=namespace, name=name)


def _now() -> datetime:
    return datetime.now(UTC)
