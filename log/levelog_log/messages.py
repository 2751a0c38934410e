"""Converts between records and messages: the subject of a record, and the record in a message. It sends nothing."""

import logging
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Final

from levelog_base.errors import RecordError
from levelog_base.wire.envelope import decode, encode
from levelog_base.wire.objects import Application, Cluster, Partition, Sequence
from levelog_base.wire.records import (
    AboutResource,
    BookmarkNoted,
    ContactLost,
    ControlRecord,
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
    only_metadata,
)
from levelog_base.wire.subjects import (
    Control,
    control_subject,
    object_in,
    object_subject,
    partition_of,
    receipt_subject,
)
from levelog_log.transport.wire import Message

log = logging.getLogger(__name__)

_CONTROL: Final[Mapping[type[AboutResource], Control]] = {
    SyncStarted: Control.SYNC,
    SyncFinished: Control.SYNC,
    GapNoted: Control.GAP,
    HistoryReverted: Control.GAP,
    BookmarkNoted: Control.BOOKMARK,
    ContactLost: Control.BOOKMARK,  # one takes back what the other says
    ObjectUnreadable: Control.UNREADABLE,
}


MOST_PAYLOAD_BYTES: Final = 64 * 1024 * 1024
"""The largest message that NATS can be set to take."""
_FIRST: Final = Partition(0)
_FRAME_BYTES: Final = 256  # more than the headers take that a batch adds


class RecordTooLarge(RecordError):
    """NATS does not take a record of this size."""


class MessageWriter:
    """Turns records into messages of one log; `LogStream.writer` makes it.

    Raises RecordError for a name that cannot stand in a header, and RecordTooLarge.
    """

    def __init__(
        self, cluster: Cluster, partitions: int, source: str, most_bytes: Callable[[], int] = lambda: MOST_PAYLOAD_BYTES
    ) -> None:
        """`source` names the part of levelog that writes (`ingest`); `most_bytes` tells what the server takes now."""
        self.cluster = cluster
        self.partitions = partitions
        self.source = source
        self._most_bytes = most_bytes
        self._prefix = secrets.token_hex(8)
        self._numbers = count(1)

    def message(
        self, record: ObjectSeen | ObjectDeleted | ControlRecord, partition: Partition = _FIRST, may_cut: bool = False
    ) -> Message:
        """The message of a record, in the partition of its object; `partition` is that of one about a resource.

        With `may_cut`, of an object that is too large only its metadata are recorded, or else its identity.
        """
        match record:
            case ObjectSeen() | ObjectDeleted():
                key = record.key
                subject = object_subject(self.cluster, key, partition_of(key, self.partitions))
            case ReceiptNoted() | TargetObserved():
                own = partition_of(record.parent, self.partitions)
                subject = receipt_subject(self.cluster, own, Application(record.application))
            case _:
                subject = control_subject(self.cluster, partition, _CONTROL[type(record)], record.resource)
        record_id = f"{self._prefix}-{next(self._numbers)}"
        headers, payload = encode(record, record_id=record_id, source=self.source)
        lines, limit = header_lines(headers), self._most_bytes()
        room = limit - len(lines) - _FRAME_BYTES
        if (excess := len(payload) - room) > 0:
            error = f"record for {subject} has {limit + excess} bytes; NATS takes {limit} (its setting max_payload)"
            if not may_cut or not (payload := _cut(payload, error, room)):
                raise RecordTooLarge(error)
            log.warning("%s; only its metadata are recorded", error, extra={"object": headers["ce-subject"]})
        return Message(subject, lines, payload)

    def to_all_partitions(self, record: AboutResource) -> list[Message]:
        """One message per partition for what concerns a whole resource."""
        return [self.message(record, Partition(number)) for number in range(self.partitions)]


def header_lines(headers: Mapping[str, str]) -> bytes:
    """Serialise headers as NATS does. Raises RecordError for a header that holds a line break."""
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if text.count("\n") != len(headers) or text.count("\r") != len(headers):
        broken = next(name for name, value in headers.items() if "\n" in f"{name}{value}" or "\r" in f"{name}{value}")
        raise RecordError(f"header {broken} cannot be published, it holds a line break: {headers[broken]!r}")
    return text.encode()


def _cut(body: bytes, why: str, most_bytes: int) -> bytes:
    """What is recorded of an object that is too large; empty if its identity is, too."""
    shorter = (only_metadata(body, why, is_least=is_least) for is_least in (False, True))
    return next((each for each in shorter if len(each) <= most_bytes), b"")


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
