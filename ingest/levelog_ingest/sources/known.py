"""The log's records of a source and their versions: where a process that takes over resumes."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final, NamedTuple

from msgspec import Struct

from levelog_base.wire.objects import GroupResource, ObjectKey, Sequence, Version
from levelog_base.wire.records import (
    BookmarkNoted,
    ContactLost,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    SyncFinished,
    SyncStarted,
    follows,
)
from levelog_base.wire.subjects import Control, control_subjects, resource_subjects
from levelog_log.reader import FIRST, read_up_to_now
from levelog_log.stream import LogStream

_DIGEST_BYTES: Final = 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class KnownRecord(NamedTuple):
    """The newest record of one name in the log."""

    digest: bytes
    version: Version


class SetChanges(Struct, frozen=True):
    """The records to write so that the log shows a set."""

    changed: list[ObjectKey]
    gone: list[ObjectKey]


class KnownRecords:
    """Folds the records of one resource as processors do: by name, the highest version counts.

    Of a record's content a digest is kept, of 16 bytes.
    """

    def __init__(self) -> None:
        self.records: dict[ObjectKey, KnownRecord] = {}
        self.version = Version(0)
        """The highest that was seen of anything about the resource."""
        self._deleted: dict[ObjectKey, Version] = {}

    def fold(self, logged: LoggedRecord) -> None:
        """Take note of a record of the log."""
        record = logged.record
        if not isinstance(record, ObjectSeen | ObjectDeleted):
            return
        self.reach(record.version)
        known = self.records.get(record.key)
        newest = known.version if known else self._deleted.get(record.key, Version(-1))
        if not follows(record, record.uid, newest, is_gone=known is None):
            return
        if isinstance(record, ObjectDeleted):
            self.drop(record.key)
            self._deleted[record.key] = record.version
        else:
            self.put(record.key, record.body, record.version)

    def reach(self, version: Version) -> None:
        """Let no later version be as low as this one."""
        self.version = max(self.version, version)

    def next_version(self, now: datetime) -> Version:
        """A version above all others: microseconds since 1970, unless a clock is behind what was recorded."""
        self.version = Version(max(self.version + 1, int((now - _EPOCH).total_seconds() * 1_000_000)))
        return self.version

    def put(self, key: ObjectKey, body: bytes, version: Version) -> None:
        """Note the record that was written under a name."""
        self.records[key] = KnownRecord(_digest(body), version)

    def drop(self, key: ObjectKey) -> None:
        """Note that a name is gone."""
        self.records.pop(key, None)

    def has(self, key: ObjectKey, body: bytes) -> bool:
        """Whether the log has exactly this record under a name."""
        known = self.records.get(key)
        return known is not None and known.digest == _digest(body)

    def compare(self, wanted: Mapping[ObjectKey, bytes], kept: Iterable[ObjectKey]) -> SetChanges:
        """What differs from a whole set; names in `kept` stay as they are."""
        left = self.records.keys() - wanted.keys() - set(kept)
        return SetChanges([key for key, body in wanted.items() if not self.has(key, body)], sorted(left))


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()


class LogState(Struct, kw_only=True):
    """What the log says of a source's records."""

    known: KnownRecords
    listed_at: datetime | None
    """When the last list ended; None if a list is needed: there is none, or the last one was not finished."""
    is_lost: bool
    """The last mark says that the source fails."""
    marked_at: datetime | None
    """When the last mark was written, that the source works or fails."""
    writer: str
    """Operator and function that wrote the newest record; empty if there is none."""


async def read_log_state(stream: LogStream, resource: GroupResource) -> LogState:
    """Fold what the log holds of a resource since its last complete list. Raises Unavailable, IdentityMismatch."""
    known = KnownRecords()
    starts: dict[str, Sequence] = {}
    finished: tuple[Sequence, SyncFinished] | None = None
    ended = Sequence(0)
    last_begun = ""
    async for logged in read_up_to_now(stream, control_subjects(stream.cluster, Control.SYNC, resource)):
        match logged.record:
            case SyncStarted(sync_id=sync_id):
                starts.setdefault(sync_id, logged.sequence)
                last_begun = sync_id
            case SyncFinished() as end:
                known.reach(end.version)
                finished = (starts.get(end.sync_id, FIRST), end)
                ended = logged.sequence
            case _:
                pass
    start = finished[0] if finished else FIRST
    writer = ""
    async for logged in read_up_to_now(stream, resource_subjects(stream.cluster, resource), start=start):
        known.fold(logged)
        if isinstance(logged.record, ObjectSeen | ObjectDeleted):
            writer = logged.record.written.manager
    mark = await stream.last_record(control_subjects(stream.cluster, Control.BOOKMARK, resource))
    is_lost = False
    times = [finished[1].time] if finished is not None else []
    if mark is not None and isinstance(mark.record, BookmarkNoted | ContactLost):
        times.append(mark.record.time)
        is_lost = isinstance(mark.record, ContactLost) and mark.sequence > ended
    if mark is not None and isinstance(mark.record, BookmarkNoted):
        known.reach(mark.record.version)
    is_complete = finished is not None and finished[1].sync_id == last_begun
    return LogState(
        known=known,
        listed_at=finished[1].time if finished is not None and is_complete else None,
        is_lost=is_lost,
        marked_at=max(times, default=None),
        writer=writer,
    )
