"""Which records a bundle can do without: versions of objects that were replaced before it begins, and bookmarks.

All records of the version that an object had when the bundle begins stay, since each list that repeats it keeps it from
being swept; the newest version of what a list left out, or what was there before history went back; and the rest.
"""

from collections.abc import Collection
from contextlib import aclosing
from typing import Self

from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import (
    BookmarkNoted,
    ContactLost,
    HistoryReverted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    SyncFinished,
)
from levelog_history.reach import Moment
from levelog_history.records import Recording, records_to
from levelog_processors.program import Program
from levelog_processors.state.state import State
from levelog_store.rows import Input


class Needed:
    """Takes the records of a history in their order, and tells afterwards which ones are needed; made by `find`."""

    def __init__(self, folded: Collection[int], ended: Collection[ObjectKey]) -> None:
        """`folded`: up to where partitions are thinned; `ended`: objects whose end is handled, which stay whole."""
        self._folded = list(folded)
        self._ended = ended
        self._state = State(Program(()), "", 0)
        self._newest: dict[str, list[int]] = {}
        """Records that show the newest version of each object, by name."""
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
        async with aclosing(records_to(history, last)) as records:
            async for logged in records:
                if start.precedes(logged):
                    needed._folded = [min(each, needed.begins.sequence) for each in needed._folded]
                    break
                needed.begins = Moment(sequence=logged.sequence, time=logged.record.time)
                if logged.sequence <= needed._folded[logged.partition]:
                    needed._take(logged)
        needed._needed.update(*needed._newest.values())
        needed._needed.update(needed._bookmarks.values())
        return needed

    def has(self, logged: LoggedRecord) -> bool:
        """Tell whether a record is needed."""
        if not isinstance(logged.record, ObjectSeen | ObjectDeleted | BookmarkNoted):
            return True
        return logged.sequence > self._folded[logged.partition] or logged.sequence in self._needed

    def _take(self, logged: LoggedRecord) -> None:
        record, sequence = logged.record, logged.sequence
        if isinstance(record, BookmarkNoted):
            self._bookmarks[logged.partition] = sequence
        elif isinstance(record, ObjectSeen | ObjectDeleted) and record.key in self._ended:
            self._needed.add(sequence)
        else:
            changes = self._state.fold([logged])
            for name in (*changes.objects, *changes.tombstones):
                if isinstance(record, SyncFinished):  # it sweeps what was shown last
                    self._needed.update(self._newest.pop(name, ()))
                else:
                    self._newest[name] = [sequence]
            for name in changes.seen_again:
                self._newest.setdefault(name, []).append(sequence)
            if changes.unreadable:
                self._needed.add(sequence)
            if isinstance(record, HistoryReverted):  # versions before and after do not compare
                for row in self._state.held((logged.partition, str(record.resource))):
                    self._needed.update(self._newest.pop(row.object, ()))
            self._state.apply(changes)


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
