"""Converts between records and messages: the subject of a record, and the record in a message."""

import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Final, TypeAlias, assert_never

from levelog.errors import RecordError
from levelog.wire.envelope import decode, encode
from levelog.wire.objects import Application, Cluster, Partition, Sequence
from levelog.wire.records import (
    BookmarkNoted,
    ContactLost,
    GapNoted,
    HistoryReverted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    ObjectUnreadable,
    ReceiptNoted,
    Record,
    SyncFinished,
    SyncStarted,
    TargetObserved,
    Unreadable,
)
from levelog.wire.subjects import Control, control_subject, object_in, object_subject, partition_of, receipt_subject
from levelog_log.transport.wire import Message, header_lines

AboutResource: TypeAlias = (
    SyncStarted | SyncFinished | GapNoted | HistoryReverted | BookmarkNoted | ContactLost | ObjectUnreadable
)
_CONTROL: Final[Mapping[type[AboutResource], Control]] = {
    SyncStarted: Control.SYNC,
    SyncFinished: Control.SYNC,
    GapNoted: Control.GAP,
    HistoryReverted: Control.GAP,
    BookmarkNoted: Control.BOOKMARK,
    ContactLost: Control.BOOKMARK,  # one takes back what the other says
    ObjectUnreadable: Control.UNREADABLE,
}


class MessageWriter:
    """Turns records into messages of one log; `source` names the part of levelog that writes (`ingest`)."""

    def __init__(self, cluster: Cluster, partitions: int, source: str) -> None:
        self.cluster = cluster
        self.partitions = partitions
        self.source = source
        self._prefix = secrets.token_hex(8)
        self._numbers = count(1)

    def message(self, record: ObjectSeen | ObjectDeleted | ReceiptNoted | TargetObserved) -> Message:
        """The message of a record that belongs to one object, in the object's partition.

        Raises RecordError for a name that cannot stand in a header.
        """
        match record:
            case ObjectSeen() | ObjectDeleted():
                key = record.key
                subject = object_subject(self.cluster, key, partition_of(key, self.partitions))
            case ReceiptNoted() | TargetObserved():
                partition = partition_of(record.parent, self.partitions)
                subject = receipt_subject(self.cluster, partition, Application(record.application))
            case _ as never:
                assert_never(never)
        headers, payload = encode(record, record_id=self._next_id(), source=self.source)
        return Message(subject, header_lines(headers), payload)

    def to_all_partitions(self, record: AboutResource) -> list[Message]:
        """One message per partition for what concerns a whole resource."""
        return [self.to_partition(record, Partition(number)) for number in range(self.partitions)]

    def to_partition(self, record: AboutResource, partition: Partition) -> Message:
        """The message of a record about a resource, in one partition."""
        headers, payload = encode(record, record_id=self._next_id(), source=self.source)
        subject = control_subject(self.cluster, partition, _CONTROL[type(record)], record.resource)
        return Message(subject, header_lines(headers), payload)

    def _next_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"


def logged_record(
    subject: str,
    partition: Partition,
    sequence: Sequence,
    nanoseconds: int,
    headers: Mapping[str, str],
    payload: bytes,
) -> LoggedRecord:
    """The record of a stored message, Unreadable if it cannot be decoded; `nanoseconds` is when it was stored."""
    record: Record
    try:
        record = decode(headers, payload)
    except RecordError as error:
        record = Unreadable(
            error=str(error),
            subject=subject,
            key=object_in(subject),
            time=datetime.fromtimestamp(nanoseconds / 1e9, UTC),
        )
    return LoggedRecord(
        sequence=sequence,
        partition=partition,
        record_id=record_id(headers),
        record=record,
    )


def record_id(headers: Mapping[str, str]) -> str:
    """The id of a record; empty if it has none."""
    return headers.get("ce-id", "").replace("\0", "")


def timestamp_nanoseconds(text: str) -> int:
    """Nanoseconds since the epoch of a time as JetStream writes it."""
    return int(datetime.fromisoformat(text).timestamp() * 1e9)


def payload_bytes(messages: Iterable[Message]) -> int:
    """Size of the payloads together."""
    return sum(len(message.payload) for message in messages)
