"""Which records a bundle can do without: versions of objects that were replaced before it begins, and bookmarks.

Of each object stay all records of the version that it had when the bundle begins, since each list that repeats it keeps
it from being swept; and the rest: lists, receipts, gaps.
"""

from collections.abc import Collection
from typing import Self

from msgspec import Struct

from levelog_base.wire.lists import Lists
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import (
    BookmarkNoted,
    ContactLost,
    HistoryReverted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    ObjectUnreadable,
    SyncFinished,
    SyncStarted,
    Unreadable,
    follows,
    is_unlisted,
    swept_version,
)
from levelog_history.reach import Moment
from levelog_processors.fold.objects import unreadable
from levelog_replay.sources import Recording
from levelog_store.rows import Input


class _Newest(Struct):
    """An object in the fold, and the records that show it."""

    partition: int
    uid: str
    version: int
    is_gone: bool
    sequences: list[int]
    """The last one says when it was last there."""


class Needed:
    """Takes the records of a history in their order, and tells afterwards which ones are needed; made by `find`."""

    def __init__(self, folded: Collection[int], ended: Collection[ObjectKey]) -> None:
        """`folded`: up to where partitions are thinned; `ended`: objects whose end is handled, which stay whole."""
        self._folded = list(folded)
        self._ended = ended
        self._newest: dict[ObjectKey, _Newest] = {}
        self._lists = Lists()
        self._needed: set[int] = set()
        self._bookmarks: dict[int, int] = {}
        """The bookmark, by partition, that tells how late it is."""
        self.begins = Moment(sequence=1)
        """Moment from which nothing is missing."""

    @classmethod
    async def find(
        cls, history: Recording, start: Moment, folded: Collection[int], ended: Collection[ObjectKey], last: int
    ) -> Self:
        """The needed ones up to `last`: nothing is left out after `start`, or after what decisions had `folded`."""
        needed = cls(folded, ended)
        is_after = False
        async for batch in history.records():
            for logged in batch:
                if not is_after and start.precedes(logged):
                    is_after = True
                    needed._folded = [min(each, needed.begins.sequence) for each in needed._folded]
                if not is_after:
                    needed.begins = Moment(sequence=logged.sequence, time=logged.record.time)
                needed._take(logged, is_before=not is_after and logged.sequence <= needed._folded[logged.partition])
            if batch and batch[-1].sequence >= last:
                break
        for newest in needed._newest.values():
            if not newest.is_gone:
                needed._needed.update(newest.sequences)
        needed._needed.update(needed._bookmarks.values())
        return needed

    def has(self, logged: LoggedRecord) -> bool:
        """Tell whether a record is needed."""
        if not isinstance(logged.record, ObjectSeen | ObjectDeleted | BookmarkNoted):
            return True
        return logged.sequence > self._folded[logged.partition] or logged.sequence in self._needed

    def _take(self, logged: LoggedRecord, *, is_before: bool) -> None:
        match logged.record:
            case ObjectSeen(key=key) | ObjectDeleted(key=key) if not is_before:
                if newest := self._newest.pop(key, None):  # a late record must not bring back what is gone
                    self._needed.update(newest.sequences)
            case ObjectSeen() | ObjectDeleted() as record:
                self._see(logged, record)
            case Unreadable(key=ObjectKey() as key) | ObjectUnreadable(key=ObjectKey() as key) if is_before:
                self._show(key, logged.sequence)
            case HistoryReverted() as record if is_before:
                self._lists.revert(logged, record)
                self._begin_anew(str(record.resource))
            case SyncStarted() as record if is_before:
                if self._lists.begin(logged, record):
                    self._begin_anew(str(record.resource))
            case SyncFinished() as record if is_before:
                self._sweep(logged, record)
            case BookmarkNoted() if is_before:
                self._bookmarks[logged.partition] = logged.sequence
            case _:
                pass

    def _see(self, logged: LoggedRecord, record: ObjectSeen | ObjectDeleted) -> None:
        key, sequence = record.key, logged.sequence
        is_skipped = bool(unreadable(record)) or self._lists.is_outdated(logged, record)
        if key in self._ended or is_skipped:
            self._needed.add(sequence)
            self._show(key, sequence)
            return
        newest = self._newest.get(key)
        if newest is None or follows(record, newest.uid, newest.version, is_gone=newest.is_gone):
            is_gone = isinstance(record, ObjectDeleted)
            self._newest[key] = _Newest(logged.partition, record.uid, record.version, is_gone, [sequence])
        elif (newest.uid, newest.version) == (record.uid, record.version):
            self._show(key, sequence)

    def _show(self, key: ObjectKey, sequence: int) -> None:
        if (newest := self._newest.get(key)) and not newest.is_gone:
            newest.sequences.append(sequence)

    def _sweep(self, logged: LoggedRecord, finished: SyncFinished) -> None:
        """Let the objects go that a list left out; it does so again if their last records are there."""
        begun = self._lists.end(logged, finished) or 0
        for key, newest in self._newest.items():
            if newest.partition != logged.partition or key.group_resource != finished.resource or newest.is_gone:
                continue
            version, inside = newest.version, key.namespace
            if is_unlisted(finished, begun=begun, sequence=newest.sequences[-1], version=version, namespace=inside):
                newest.is_gone = True
                newest.version = swept_version(finished, version=version, namespace=inside)

    def _begin_anew(self, resource: str) -> None:
        """Versions before and after do not compare: what was known stays."""
        for key in [each for each in self._newest if str(each.group_resource) == resource]:
            self._needed.update(self._newest.pop(key).sequences)


class Losses:
    """Tells which bookmarks end a lost contact: views are told of that, and of nothing else that a bookmark says."""

    def __init__(self) -> None:
        self._lost: set[Input] = set()

    def ends(self, logged: LoggedRecord) -> bool:
        """Tell whether a record ends one; takes them in their order."""
        record = logged.record
        if isinstance(record, ContactLost):
            self._lost.add((logged.partition, str(record.resource)))
        elif isinstance(record, BookmarkNoted | SyncFinished):
            place = (logged.partition, str(record.resource))
            is_lost = place in self._lost
            self._lost.discard(place)
            return is_lost
        return False
