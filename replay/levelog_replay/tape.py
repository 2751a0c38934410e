"""The objects in the log up to the position of each partition at some moment, in memory."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Final

from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen
from levelog_history.records import Recording
from levelog_processors.decide.readiness import Readiness, is_watched
from levelog_processors.fold.batches import ALONE, parts
from levelog_processors.program import Program
from levelog_processors.state.state import State
from levelog_processors.state.wakes import Wakes
from levelog_store.fold.ends import Ends
from levelog_store.rows import Origin

WINDOW_BYTES: Final = 64 * 1024 * 1024
"""Records folded at once: of versions of an object that follow one another, only the last costs more than reading."""
_RECORD_BYTES: Final = 1000
"""About what a record takes besides its body."""


class Rebuilt:
    """The State of one version of the code, for callers that know what was decided: it asks for nothing."""

    def __init__(self, program: Program, origin: Origin) -> None:
        self.program = program
        self.origin = origin
        self.state = State(program, origin.application, origin.partitions)
        self.readiness = Readiness(program, partitions=origin.partitions)

    def fold(self, records: Iterable[LoggedRecord]) -> None:
        """Fold records that are not folded yet, in the order of the log."""
        state = self.state
        for part in parts(records):
            state.apply(state.fold(part))
            state.levels |= {(row.view, row.parent): row for row in state.ends.made(())}
            state.ends, state.wakes = Ends(), Wakes()
            if type(part[0].record) in ALONE:
                self.readiness = Readiness(self.program, state.syncs.values(), partitions=self.origin.partitions)

    def is_watched(self, key: ObjectKey) -> bool:
        """Tell whether the log shows what becomes of an object."""
        return is_watched(self.program, self.readiness.namespaces, key)


class Tape:
    """Folds the records of a history, each once, for one version of the code or for two."""

    def __init__(self, history: Recording, sides: Sequence[Rebuilt]) -> None:
        self._records = history.records()
        self._sides = sides
        self._ahead: list[LoggedRecord] = []
        """Read, and after the moment: where processors are not equally far, as many as lie between the two."""
        self.position = 0
        """Sequence up to which the log was read."""
        self.records = 0
        """The number of records folded."""

    async def fold_up_to(self, folded: Sequence[int]) -> None:
        """Fold what is not folded yet up to a sequence in each partition."""
        ahead, self._ahead = self._ahead, []
        due: list[LoggedRecord] = []
        size = 0
        async for logged in self._up_to(max(folded, default=0), ahead):
            if logged.sequence > folded[logged.partition]:
                self._ahead.append(logged)
                continue
            due.append(logged)
            size += _size(logged)
            if size > WINDOW_BYTES:
                self._fold(due)
                due, size = [], 0
        self._fold(due)

    async def _up_to(self, end: int, ahead: Sequence[LoggedRecord]) -> AsyncGenerator[LoggedRecord]:
        for logged in ahead:
            yield logged
        while self.position < end and (read := await anext(self._records, None)) is not None:
            self.position = read.sequence
            yield read

    def _fold(self, due: Sequence[LoggedRecord]) -> None:
        self.records += len(due)
        for side in self._sides:
            side.fold(due)


def _size(logged: LoggedRecord) -> int:
    record = logged.record
    return _RECORD_BYTES + (len(record.body) if isinstance(record, ObjectSeen | ObjectDeleted) else 0)
