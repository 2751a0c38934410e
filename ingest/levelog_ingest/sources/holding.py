"""What the log holds of a source's records, and in which versions."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final, NamedTuple

from msgspec import Struct

from levelog.wire.objects import ObjectKey, Version
from levelog.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen

_DIGEST_BYTES: Final = 16


class HeldRecord(NamedTuple):
    """The newest record of one name that is there."""

    digest: bytes
    version: Version


class Changes(Struct, frozen=True):
    """What has to be recorded, so that the log shows a set."""

    changed: list[ObjectKey]
    gone: list[ObjectKey]


class Holding:
    """Folds the records of one resource as processors do: by name, the highest version counts.

    Of a record's content a digest is kept, of 16 bytes.
    """

    def __init__(self) -> None:
        self.records: dict[ObjectKey, HeldRecord] = {}
        self.version = Version(0)
        """The highest that was seen of anything about the resource."""
        self._deleted: dict[ObjectKey, Version] = {}

    def fold(self, logged: LoggedRecord) -> None:
        """Take note of a record of the log."""
        record = logged.record
        if not isinstance(record, ObjectSeen | ObjectDeleted):
            return
        self.reach(record.version)
        held = self.records.get(record.key)
        newest = held.version if held else self._deleted.get(record.key, Version(-1))
        if record.version < newest:
            return
        if isinstance(record, ObjectDeleted):
            self.drop(record.key)
            self._deleted[record.key] = record.version
        elif record.version > newest or held is None:
            self._deleted.pop(record.key, None)
            self.put(record.key, record.body, record.version)

    def reach(self, version: Version) -> None:
        """Let no later version be as low as this one."""
        self.version = max(self.version, version)

    def next_version(self, now: datetime) -> Version:
        """A version above all others: microseconds since 1970, unless a clock is behind what was recorded."""
        self.version = Version(max(self.version + 1, int((now - _EPOCH).total_seconds() * 1_000_000)))
        return self.version

    def put(self, key: ObjectKey, body: bytes, version: Version) -> None:
        """Note what was recorded of a name."""
        self.records[key] = HeldRecord(_digest(body), version)

    def drop(self, key: ObjectKey) -> None:
        """Note that a name is gone."""
        self.records.pop(key, None)

    def has(self, key: ObjectKey, body: bytes) -> bool:
        """Whether just this is held of a name."""
        held = self.records.get(key)
        return held is not None and held.digest == _digest(body)

    def compare(self, wanted: Mapping[ObjectKey, bytes], kept: Iterable[ObjectKey]) -> Changes:
        """What differs from a whole set; names in `kept` stay as they are."""
        left = self.records.keys() - wanted.keys() - set(kept)
        return Changes([key for key, body in wanted.items() if not self.has(key, body)], sorted(left))


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()
