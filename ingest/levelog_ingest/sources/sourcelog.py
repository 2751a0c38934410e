"""Writes what a source reports to the log: lists, differences, and whether there is contact."""

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from levelog.resources import External, Gone, Traced
from levelog.sources import SourceHandler
from levelog_base.counting import counted
from levelog_base.errors import RecordError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import ObjectKey, Version
from levelog_base.wire.records import (
    BookmarkNoted,
    ContactLost,
    ObjectDeleted,
    ObjectSeen,
    Origin,
    SyncFinished,
    SyncStarted,
    Written,
)
from levelog_base.wire.subjects import object_subject, partition_of
from levelog_ingest.sources.encoding import Encoder, shown, uid_of
from levelog_ingest.sources.known import LogState
from levelog_ingest.status import DIFFERENCE
from levelog_log.appender import Appender, Lane
from levelog_log.messages import RecordTooLarge
from levelog_log.stream import LogStream
from levelog_log.transport.wire import Message

log = logging.getLogger(__name__)

MARK_EVERY: Final = timedelta(minutes=1)
"""How often contact is recorded while nothing changes: as often as an API server sends bookmarks."""


class SourceLog:
    """Writes for one source, from the state of the log when this process took over.

    Each call returns when everything is durable. After an error of the log, discard it and read the state again.
    """

    def __init__(
        self,
        source: SourceHandler,
        stream: LogStream,
        appender: Appender,
        redactor: Redactor,
        state: LogState,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._source = source
        self._resource = source.resource.group_resource
        self._stream = stream
        self._lane = Lane(appender)
        self._encoder = Encoder(source, redactor)
        self._writer = stream.writer("ingest")
        self._known = state.known
        self._listed_at = state.listed_at
        self._is_lost = state.is_lost
        self._lost_with = ""
        self._marked_at = state.marked_at
        self._clock = clock
        self._traces: Mapping[ObjectKey, str] = {}
        """Where the records that are being written come from."""

    @property
    def records(self) -> int:
        """How many records there are."""
        return len(self._known.records)

    @property
    def version(self) -> Version:
        """The highest that was written."""
        return self._known.version

    def list_due(self) -> datetime:
        """When everything has to be written again, so that the log holds a complete list while it keeps records."""
        if self._listed_at is None or self._listed_at - self._clock() > DIFFERENCE:
            return datetime.min.replace(tzinfo=UTC)
        max_age = self._stream.max_age
        return self._listed_at + max_age / 2 if max_age else datetime.max.replace(tzinfo=UTC)

    async def whole(self, records: Iterable[object]) -> str:
        """Record a whole set: the differences, or all of it if a list is due.

        Returns one sentence on what could not be recorded. Earlier records of these names stay; if a refused record has
        no known name, all records that the set does not name stay.
        """
        observed = self._known.next_version(self._clock())
        encoded = self._encoder.whole(records)
        self._traces = encoded.traces
        kept = set(self._known.records) - encoded.bodies.keys() if encoded.unnamed else set(encoded.refused)
        refused = dict(encoded.refused)
        write = self._list if self._clock() >= self.list_due() else self._differences
        await write(encoded.bodies, kept, observed, refused)
        return replace(encoded, refused=refused).complaint

    async def change(self, given: External | Traced | Gone) -> str:
        """Record one record, or that it is gone. Returns one sentence if it could not be recorded."""
        change, trace = (given.record, given.traceparent) if isinstance(given, Traced) else (given, "")
        observed = self._known.next_version(self._clock())
        try:
            key = self._encoder.key(change)
            if isinstance(change, External):
                body = self._encoder.body(key, change)
                if not self._known.has(key, body):
                    self._traces = {key: trace}
                    await self._lane.submit((self._seen(key, body, observed, "watch"),))
                    self._known.put(key, body, observed)
            elif key in self._known.records:
                await self._delete([key], observed)
        except RecordError as error:
            return str(error)
        await self._lane.flush()
        return ""

    async def heard(self, complaint: str = "") -> None:
        """Record contact with the source: at once after it was lost, otherwise once a minute.

        With a complaint, the set was not complete, and contact counts as lost.
        """
        if complaint:
            await self.lost(complaint)
        elif self._is_lost or self._is_mark_due():
            version, time = self._known.version, self._clock()
            await self._to_all(BookmarkNoted(resource=self._resource, version=version, time=time))
            self._is_lost, self._lost_with, self._marked_at = False, "", time

    async def lost(self, error: str) -> None:
        """Record that the source fails: once, and again with another error, at most each minute."""
        if self._is_lost and (error == self._lost_with or not self._is_mark_due()):
            return
        time = self._clock()
        await self._to_all(ContactLost(resource=self._resource, error=error, time=time))
        self._is_lost, self._lost_with, self._marked_at = True, error, time

    def _is_mark_due(self) -> bool:
        return self._marked_at is None or abs(self._clock() - self._marked_at) >= MARK_EVERY

    async def _differences(
        self,
        bodies: Mapping[ObjectKey, bytes],
        kept: set[ObjectKey],
        observed: Version,
        refused: dict[ObjectKey, str],
    ) -> None:
        changes = self._known.compare(bodies, kept)
        versions = dict.fromkeys(changes.changed, observed)
        await self._put({key: bodies[key] for key in changes.changed}, versions, "watch", refused)
        await self._delete(changes.gone, observed)
        await self._lane.flush()
        if changes.changed or changes.gone:
            log.info(
                "%s: %d records changed, %d are gone",
                self._resource,
                len(changes.changed),
                len(changes.gone),
                extra={"resource": str(self._resource), "version": observed},
            )

    async def _list(
        self,
        bodies: Mapping[ObjectKey, bytes],
        kept: set[ObjectKey],
        observed: Version,
        refused: dict[ObjectKey, str],
    ) -> None:
        """Write everything between the marks of a list; an unchanged record keeps its version and wakes nothing."""
        sync_id = secrets.token_hex(8)
        await self._to_all(SyncStarted(resource=self._resource, sync_id=sync_id, time=self._clock()))
        gone = self._known.compare(bodies, kept).gone
        versions = {
            key: self._known.records[key].version if self._known.has(key, body) else observed
            for key, body in bodies.items()
        }
        await self._put(bodies, versions, "list", refused)
        again = [key for key in sorted({*kept, *refused}) if key in self._known.records]
        stored = {key: await self._last_body(key) for key in again}
        versions = {key: self._known.records[key].version for key in again}
        await self._put(stored, versions, "list", refused)
        await self._delete(gone, observed)
        time = self._clock()
        await self._to_all(SyncFinished(resource=self._resource, sync_id=sync_id, version=observed, time=time))
        self._listed_at = self._marked_at = time
        self._is_lost = False
        log.info(
            "listed %s", counted(self.records, "record"), extra={"resource": str(self._resource), "version": observed}
        )

    async def _put(
        self,
        bodies: Mapping[ObjectKey, bytes],
        versions: Mapping[ObjectKey, Version],
        origin: Origin,
        refused: dict[ObjectKey, str],
    ) -> None:
        for key, body in bodies.items():
            try:
                message = self._seen(key, body, versions[key], origin)
            except RecordError as error:
                refused[key] = str(error)
                continue
            await self._lane.submit((message,))
            self._known.put(key, body, versions[key])

    async def _delete(self, keys: Iterable[ObjectKey], observed: Version) -> None:
        for key in keys:
            await self._lane.submit((self._deleted(key, await self._last_body(key), observed),))
            self._known.drop(key)

    async def _last_body(self, key: ObjectKey) -> bytes:
        """The last body of a record in the log; only its identity, once that has expired."""
        subject = object_subject(self._stream.cluster, key, partition_of(key, self._stream.partitions))
        last = await self._stream.last_record(subject)
        if last is not None and isinstance(last.record, ObjectSeen):
            return last.record.body
        return msgspec.json.encode({"metadata": {"name": key.name, "namespace": key.namespace, "uid": uid_of(key)}})

    def _seen(self, key: ObjectKey, body: bytes, version: Version, origin: Origin) -> Message:
        time = self._clock()
        record = ObjectSeen(
            key=key,
            uid=uid_of(key),
            version=version,
            origin=origin,
            time=time,
            written=self._written(time),
            traceparent=self._traces.get(key, ""),
            body=body,
        )
        try:
            return self._writer.message(record)
        except RecordTooLarge as error:
            limit = self._stream.connection.max_payload_bytes
            raise RecordError(
                f"{shown(self._source.cls, key)} cannot be recorded: NATS takes {limit} bytes, its setting max_payload"
            ) from error

    def _deleted(self, key: ObjectKey, body: bytes, version: Version) -> Message:
        time, uid = self._clock(), uid_of(key)
        written = self._written(time)
        return self._writer.message(
            ObjectDeleted(key=key, uid=uid, version=version, origin="watch", time=time, written=written, body=body)
        )

    def _written(self, time: datetime) -> Written:
        return Written(manager=f"{self._source.operator}/{self._source.name}", at=time.isoformat())

    async def _to_all(self, record: SyncStarted | SyncFinished | BookmarkNoted | ContactLost) -> None:
        await self._lane.submit(self._writer.to_all_partitions(record))
        await self._lane.flush()
