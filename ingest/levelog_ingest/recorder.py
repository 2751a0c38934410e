"""From the bytes of one resource's objects to messages of the log."""

import logging
from datetime import UTC, datetime

from levelog.errors import RecordError
from levelog.objects import ObjectKey, Version
from levelog.records import BookmarkNoted, GapNoted, ObjectDeleted, ObjectSeen, Origin, SyncFinished, SyncStarted
from levelog.redaction import Redactor
from levelog_ingest.trimming import Trimmed, only_metadata, trim
from levelog_ingest.watched import ResourceStatus
from levelog_log.messages import Writer
from levelog_log.publisher import BatchPublisher
from levelog_log.wire import Message

log = logging.getLogger(__name__)


class Recorder:
    """Makes the messages of one watched resource: trimmed, redacted, checked for their size.

    An object that cannot be recorded is logged and counted in the status, and nothing else is held up by it.
    """

    def __init__(self, publisher: BatchPublisher, writer: Writer, redactor: Redactor, status: ResourceStatus) -> None:
        self._publisher = publisher
        self._writer = writer
        self._redactor = redactor
        self._status = status
        self._watched = status.watched
        self._resource = status.watched.resource

    def object_message(
        self, body: bytes, *, origin: Origin, is_deleted: bool = False, kind: str = ""
    ) -> tuple[Version | None, Message | None]:
        """The object's version and its message; None where it cannot be read or recorded."""
        try:
            trimmed = trim(body, api_version=self._watched.api_version, kind=kind)
        except RecordError as error:
            self._skip(error, "")
            return None, None
        key = ObjectKey(
            group=self._resource.group,
            resource=self._resource.resource,
            namespace=trimmed.namespace,
            name=trimmed.name,
        )
        redacted = self._redactor.redact_body(self._resource, trimmed.body)
        try:
            try:
                message = self._message(key, trimmed, redacted, origin, is_deleted=is_deleted)
            except _TooLarge as error:
                log.warning("%s; only its metadata are recorded", error, extra={"object": str(key)})
                smaller = only_metadata(redacted, str(error))
                message = self._message(key, trimmed, smaller, origin, is_deleted=is_deleted)
        except RecordError as error:
            self._skip(error, str(key))
            return trimmed.version, None
        return trimmed.version, message

    def list_started(self, sync_id: str) -> list[Message]:
        """A list begins, told to all partitions."""
        namespace = self._watched.namespace
        return self._writer.to_all_partitions(
            SyncStarted(resource=self._resource, sync_id=sync_id, namespace=namespace, time=_now())
        )

    def list_finished(self, sync_id: str, version: Version) -> list[Message]:
        """A list is complete, told to all partitions."""
        namespace = self._watched.namespace
        return self._writer.to_all_partitions(
            SyncFinished(resource=self._resource, sync_id=sync_id, namespace=namespace, version=version, time=_now())
        )

    def gap(self, since: Version, reason: str) -> list[Message]:
        """History is missing, told to all partitions."""
        return self._writer.to_all_partitions(
            GapNoted(resource=self._resource, reason=reason, since=since, time=_now())
        )

    def bookmark(self, version: Version) -> list[Message]:
        """The watch has come so far, told to all partitions: each has a time of its own."""
        return self._writer.to_all_partitions(BookmarkNoted(resource=self._resource, version=version, time=_now()))

    def _message(self, key: ObjectKey, trimmed: Trimmed, body: bytes, origin: Origin, *, is_deleted: bool) -> Message:
        message = self._writer.message(
            (ObjectDeleted if is_deleted else ObjectSeen)(
                key=key,
                uid=trimmed.uid,
                version=trimmed.version,
                origin=origin,
                time=_now(),
                written=trimmed.written,
                body=body,
            )
        )
        try:
            self._publisher.check(message)
        except RecordError as error:
            raise _TooLarge(str(error)) from error
        return message

    def _skip(self, error: RecordError, key: str) -> None:
        self._status.skipped += 1
        log.error("object not recorded: %s", error, extra={"resource": str(self._watched), "object": key})


class _TooLarge(RecordError):
    """NATS does not take a record of this size."""


def _now() -> datetime:
    return datetime.now(UTC)
