"""Entries that end by themselves, by the log's time, so that history that is folded again ends them alike."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from levelog.records import LoggedRecord, ReceiptNoted, TargetSighted, Unreadable
from levelog_store.rows import Entry


class LogTime:
    """Time of each partition: the newest of the records that ingest wrote to it; it never goes back."""

    def __init__(self, held: Mapping[int, datetime]) -> None:
        self._times = dict(held)

    def note(self, logged: LoggedRecord) -> None:
        """Take in a record; another process's clock does not count."""
        record = logged.record
        if isinstance(record, ReceiptNoted | TargetSighted | Unreadable):
            return
        known = self._times.get(logged.partition)
        if known is None or record.time > known:
            self._times[logged.partition] = record.time

    def of(self, partition: int) -> datetime | None:
        """Time of a partition; None before its first record."""
        return self._times.get(partition)

    @property
    def newest(self) -> datetime | None:
        """The latest time of any partition."""
        return max(self._times.values(), default=None)


def is_expired(entry: Entry, now: datetime | None) -> bool:
    """Tell whether an entry's time is over."""
    return entry.expires_at is not None and now is not None and entry.expires_at <= now


def unexpired(entries: Iterable[Entry], now: datetime | None) -> list[Entry]:
    """Those whose time is not over."""
    return [entry for entry in entries if not is_expired(entry, now)]
