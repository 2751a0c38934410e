"""Which records a bundle can do without: versions of objects that were replaced before it begins, and bookmarks.

All records of the version that an object had when the bundle begins stay, since each list that repeats it keeps it from
being swept; the newest version of what a list left out, or what was there before history went back; and the rest.
"""

from collections.abc import Collection
from typing import Self

from msgspec import Struct

from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import (
    BookmarkNoted,
    ContactLost,
    HistoryReverted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    SyncFinished,
    SyncStarted,
    api_version_of,
    follows,
)
from levelog_history.reach import Moment
from levelog_processors.fold.foldedobjects import unreadable
from levelog_replay.historysources import Recording
from levelog_store.rows import Input


class _Newest(Struct):
    """The newest version of an object, and the records that show it."""

    partition: int
    record: ObjectSeen | ObjectDeleted
    sequences: list[int]


class Needed:
    """Takes the records of a history in their order, and tells afterwards which ones are needed; made by `find`."""

    def __init__(self, folded: Collection[int], ended: Collection[ObjectKey]) -> None:
        """`folded`: up to where partitions are thinned; `ended`: objects whose end is handled, which stay whole."""
        self._folded = list(folded)
        self._ended = ended
        self._newest: dict[ObjectKey, _Newest] = {}
        self._begun: dict[tuple[int, str], int] = {}
        """Where lists began that are under way, by partition and id."""
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
                    if logged.sequence <= needed._folded[logged.partition]:
                        needed._take(logged)
            if batch and batch[-1].sequence >= last:
                break
        for newest in needed._newest.values():
            needed._needed.update(newest.sequences)
        needed._needed.update(needed._bookmarks.values())
        return needed

    def has(self, logged: LoggedRecord) -> bool:
        """Tell whether a record is needed."""
        if not isinstance(logged.record, ObjectSeen | ObjectDeleted | BookmarkNoted):
            return True
        return logged.sequence > self._folded[logged.partition] or logged.sequence in self._needed

    def _take(self, logged: LoggedRecord) -> None:
        match logged.record:
            case ObjectSeen() | ObjectDeleted() as record:
                self._see(logged, record)
            case SyncStarted() as record:
                self._begun[logged.partition, record.sync_id] = logged.sequence
            case SyncFinished() as record:
                self._keep(logged, record, self._begun.pop((logged.partition, record.sync_id), 0))
            case HistoryReverted() as record:
                self._keep(logged, record, logged.sequence)
            case BookmarkNoted():
                self._bookmarks[logged.partition] = logged.sequence
            case _:
                pass

    def _keep(self, logged: LoggedRecord, record: SyncFinished | HistoryReverted, begun: int) -> None:
        """Keep the versions that were last shown before this: a list sweeps them, or they do not compare any more."""
        for key, newest in [*self._newest.items()]:
            place = newest.partition, key.group_resource
            if place == (logged.partition, record.resource) and newest.sequences[-1] < begun:
                self._needed.update(self._newest.pop(key).sequences)

    def _see(self, logged: LoggedRecord, record: ObjectSeen | ObjectDeleted) -> None:
        key, sequence = record.key, logged.sequence
        newest = self._newest.get(key)
        if key in self._ended or unreadable(record):
            self._needed.add(sequence)
        elif newest is None or follows(
            record, newest.record.uid, newest.record.version, is_gone=isinstance(newest.record, ObjectDeleted)
        ):
            if newest is not None and api_version_of(record) != api_version_of(newest.record):
                self._needed.update(newest.sequences)  # the fold takes one of the two
            self._newest[key] = _Newest(logged.partition, record, [sequence])
        elif (newest.record.uid, newest.record.version) == (record.uid, record.version):
            newest.sequences.append(sequence)


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
