"""A history that is folded into scratch tables, up to one moment after the other."""

from collections.abc import Collection, Sequence
from contextlib import aclosing

from levelog.wire.objects import GroupResource
from levelog.wire.records import LoggedRecord, ObjectSeen
from levelog_replay.history import Recording
from levelog_replay.scratch import Scratch
from levelog_replay.tape import Stretch, Tape


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
        folded = await scratch.fold(stretch.records, stretch.thinned)
        if folded.lacking:
            left_out = await self._left_out(stretch, folded.lacking)
            whole = sorted((*left_out, *stretch.records), key=lambda logged: logged.sequence)
            await scratch.fold(whole, stretch.thinned.keys() - folded.lacking)

    async def _left_out(self, stretch: Stretch, names: Collection[str]) -> list[LoggedRecord]:
        """The records of some objects that were left out of a stretch, read anew."""
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
        return not any(scratch.program.needs_each_version(str(resource)) for scratch in self._scratches)


def _is_of(logged: LoggedRecord, names: Collection[str]) -> bool:
    record = logged.record
    return isinstance(record, ObjectSeen) and str(record.key) in names
