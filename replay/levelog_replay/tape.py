"""The records of the log up to the position of each partition at some moment, without superseded versions."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Final

from msgspec import Struct

from levelog.selectors import Selector
from levelog.wire.objects import GroupResource, ObjectKey
from levelog.wire.records import (
    HistoryReverted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    ObjectUnreadable,
    Record,
    SyncFinished,
    Unreadable,
)
from levelog_processors.program import Program
from levelog_replay.scratch import Scratch
from levelog_replay.sources import Recording

FOLD_BATCH: Final = 2000
"""Records folded at once."""
WINDOW_BYTES: Final = 64 * 1024 * 1024
"""Held back to see whether a newer version comes: memory that replay takes, however long the history is."""
_RECORD_BYTES: Final = 1000
"""About what a record takes besides its body."""


class Stretch(Struct, frozen=True):
    """Records that follow one another, to be folded at once."""

    records: list[LoggedRecord]
    thinned: Mapping[str, int]
    """Objects of which records were thinned out, with the sequence of the first of those."""


class Tape:
    """Takes batches of records in the order of the log, and gives out those that belong before a moment.

    Where an object is shown twice in a row, by the newer record in a newer version of the same incarnation, the older
    record is thinned out: folding both at once comes to the same, unless the newer one cannot be read or an index
    function raises for it. Then the fold asks for the older ones.
    """

    def __init__(
        self,
        batches: AsyncIterator[list[LoggedRecord]],
        *,
        is_thinned: Callable[[GroupResource], bool],
    ) -> None:
        """`is_thinned` tells of which resources records may be thinned out."""
        self._batches = batches
        self._is_thinned = is_thinned
        self._thins: dict[GroupResource, bool] = {}
        self._ahead: list[LoggedRecord] = []
        self._window: dict[int, LoggedRecord] = {}
        """By sequence, in the order of the log."""
        self._newest: dict[ObjectKey, int] = {}
        """Sequence of the last record of an object in the window, if another version may replace it."""
        self._first_thinned: dict[int, int] = {}
        """By the sequence of a record, that of the first one that was thinned out for it."""
        self._bytes = 0
        self.position = 0
        """Sequence of the last record that was read."""
        self.records = 0
        """How many were given out or thinned out."""

    async def up_to(self, folded: Sequence[int]) -> AsyncGenerator[Stretch]:
        """The records up to a sequence in each partition that were not given out yet, in the order of the log.

        Where processors are not equally far, those of the ones ahead wait here: as many as lie between the two.
        """
        end = max(folded, default=0)
        batch, self._ahead = self._ahead, []
        while True:
            for logged in batch:
                if logged.sequence <= folded[logged.partition]:
                    self._add(logged)
                else:
                    self._ahead.append(logged)
            while self._bytes > WINDOW_BYTES:
                yield self._take()
            if self.position >= end:
                break
            batch = await anext(self._batches, [])
            if not batch:
                break
            self.position = batch[-1].sequence
        while self._window:
            yield self._take()

    def _add(self, logged: LoggedRecord) -> None:
        self.records += 1
        self._bytes += _size(logged)
        record = logged.record
        if isinstance(record, ObjectSeen):
            before = self._newest.get(record.key)
            if before is not None and _replaces(record, self._window[before].record):
                self._bytes -= _size(self._window.pop(before))
                self._first_thinned[logged.sequence] = self._first_thinned.pop(before, before)
            if self._may_thin(record.key.group_resource):
                self._newest[record.key] = logged.sequence
        elif isinstance(record, ObjectDeleted | ObjectUnreadable | Unreadable):
            if record.key is not None:
                self._newest.pop(record.key, None)
        elif isinstance(record, SyncFinished | HistoryReverted):
            self._newest.clear()  # what it sweeps, or takes the version from, is what was before it
        self._window[logged.sequence] = logged

    def _may_thin(self, resource: GroupResource) -> bool:
        found = self._thins.get(resource)
        if found is None:
            found = self._thins[resource] = self._is_thinned(resource)
        return found

    def _take(self) -> Stretch:
        """The oldest records of the window; ends of lists by themselves, as the fold commits them."""
        records: list[LoggedRecord] = []
        is_sweep: bool | None = None
        for logged in islice(self._window.values(), FOLD_BATCH):
            if is_sweep not in (None, is_sweep := isinstance(logged.record, SyncFinished)):
                break
            records.append(logged)
        thinned: dict[str, int] = {}
        for logged in records:
            del self._window[logged.sequence]
            self._bytes -= _size(logged)
            record = logged.record
            if isinstance(record, ObjectSeen):
                if self._newest.get(record.key) == logged.sequence:
                    del self._newest[record.key]
                if (first := self._first_thinned.pop(logged.sequence, None)) is not None:
                    thinned.setdefault(str(record.key), first)
        return Stretch(records, thinned)


def _replaces(record: ObjectSeen, before: Record) -> bool:
    return isinstance(before, ObjectSeen) and record.uid == before.uid and record.version > before.version


def _size(logged: LoggedRecord) -> int:
    record = logged.record
    return _RECORD_BYTES + (len(record.body) if isinstance(record, ObjectSeen | ObjectDeleted) else 0)


class HistoryFolder:
    """Folds the records of a history, each once, into the tables of one version of the code or of two."""

    def __init__(self, history: Recording, scratches: Sequence[Scratch]) -> None:
        self._history = history
        self._scratches = scratches
        self._tape = Tape(history.records(), is_thinned=self._is_thinned)

    @property
    def records(self) -> int:
        """How many records were folded."""
        return self._tape.records

    @property
    def position(self) -> int:
        """Sequence up to which the log was read."""
        return self._tape.position

    async def fold_up_to(self, folded: Sequence[int]) -> None:
        """Fold what is not folded yet up to a sequence in each partition."""
        async for stretch in self._tape.up_to(folded):
            for scratch in self._scratches:
                await self._fold(scratch, stretch)

    async def _fold(self, scratch: Scratch, stretch: Stretch) -> None:
        if lacking := await scratch.fold(stretch.records, stretch.thinned):
            thinned = await self._read_thinned(stretch, lacking)
            whole = sorted((*thinned, *stretch.records), key=lambda logged: logged.sequence)
            await scratch.fold(whole, stretch.thinned.keys() - lacking)

    async def _read_thinned(self, stretch: Stretch, names: Collection[str]) -> list[LoggedRecord]:
        """The records of some objects that were thinned out of a stretch, read anew."""
        first = min(stretch.thinned[name] for name in names)
        end = stretch.records[-1].sequence
        there = {logged.sequence for logged in stretch.records}
        found: list[LoggedRecord] = []
        async with aclosing(self._history.records(first)) as batches:
            async for batch in batches:
                found += (each for each in batch if each.sequence not in there and _is_of(each, names))
                if batch[-1].sequence >= end:
                    break
        return [logged for logged in found if logged.sequence < end]

    def _is_thinned(self, resource: GroupResource) -> bool:
        return not any(_needs_each_version(scratch.program, str(resource)) for scratch in self._scratches)


def _needs_each_version(program: Program, resource: str) -> bool:
    """Whether a version of an object may leave something behind that the next one does not undo.

    So do times after which entries expire, a filter that leaves a parent out for a while, as its level ends then, and
    an end that is handled.
    """
    filters = (view.handler.reader.selector for view in program.views_of(resource))
    return program.expires or bool(program.views_of_deleted(resource)) or any(each != Selector() for each in filters)


def _is_of(logged: LoggedRecord, names: Collection[str]) -> bool:
    record = logged.record
    return isinstance(record, ObjectSeen) and str(record.key) in names
