"""What two versions of the code decided in mode `log`, side by side."""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from typing import Final

from levelog_replay.judging import NO_VIEW, Judged
from levelog_replay.outcomes import Outcome
from levelog_replay.scratch import Scratch
from levelog_store.decide.decisions import Decision
from levelog_store.look.recall import read_asked, read_called
from levelog_store.rows import ViewParent

_END: Final = 1 << 63


async def pairs(first: Scratch, second: Scratch) -> AsyncIterator[tuple[Judged, Judged]]:
    """Decisions on a level that saw the same snapshot; where one side made none, its half has no outcome."""
    moments = [_Moments(first), _Moments(second)]
    while True:
        at = min([await each.next() for each in moments])
        if at == _END:
            return
        one, other = [await each.take(at) for each in moments]
        for level in sorted(one.keys() | other.keys()):
            made = max(len(one.get(level, ())), len(other.get(level, ())))
            for number in range(made):
                halves = [side[level][number] if number < len(side.get(level, ())) else None for side in (one, other)]
                past = next(half.past for half in halves if half is not None)
                absent = Judged(past=past, outcome=None, obstacle=NO_VIEW)
                yield halves[0] or absent, halves[1] or absent


class _Moments:
    """The decisions of one side, a snapshot at a time."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._decisions = read_called(scratch.database, scratch.scope)
        self._ahead: Decision | None = None

    async def next(self) -> int:
        """The next snapshot; _END: there is none."""
        if self._ahead is None:
            self._ahead = await anext(self._decisions, None)
        return _END if self._ahead is None else sum(self._ahead.basis.folded)

    async def take(self, snapshot: int) -> Mapping[ViewParent, list[Judged]]:
        """The decisions of a snapshot, by level."""
        found: defaultdict[ViewParent, list[Judged]] = defaultdict(list)
        while await self.next() == snapshot and self._ahead is not None:
            past, self._ahead = self._ahead, None
            found[past.view, past.parent].append(await self._judged(past))
        return found

    async def _judged(self, past: Decision) -> Judged:
        outcome = Outcome.recorded(past)
        if past.intents:
            async with self._scratch.database.reading() as connection:
                asked = await read_asked(connection, self._scratch.scope, past.intents)
            outcome = outcome.with_intents(asked)
        return Judged(past=past, outcome=outcome)
