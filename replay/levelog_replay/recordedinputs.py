"""Repeats every decision on what the log showed when it was made.

A decision notes how far each partition was folded in its snapshot. Snapshots of one database follow one another, so
State is folded from each to the next, whoever folded what and in which batches.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from levelog_replay.choice import Selection
from levelog_replay.comparing import Judged
from levelog_replay.historysources import History
from levelog_replay.judging import Judge
from levelog_replay.tape import Tape
from levelog_store.decide.decisions import Decision, WithWrites
from levelog_store.rows import ViewParent

MOST_AT_ONCE: Final = 256
"""Decisions of one snapshot that are made side by side."""

TOO_EARLY: Final = (
    "history begins later: what the view reads was not listed yet, or not in the version that the code declares"
)
LOST: Final = "it was made on a log that is gone: the one that is there began later"
OUT_OF_ORDER: Final = "it was made while the tables were rebuilt, from less than others had seen before"


class RecordedReplay:
    """Makes the selected decisions again, by one version of the code or by two."""

    def __init__(self, history: History, selection: Selection, sides: Sequence[Judge]) -> None:
        self._history = history
        self._selection = selection
        self._sides = sides
        self._at = (0,) * history.origin.partitions
        self._began = _moment(history.origin.stream_created)
        self._tape = Tape(history, [side.rebuilt for side in sides])

    @property
    def records(self) -> int:
        """The number of records folded."""
        return self._tape.records

    @property
    def position(self) -> int:
        """Sequence up to which the log was read."""
        return self._tape.position

    async def run(self) -> AsyncGenerator[tuple[Judged, ...]]:
        """Each selected decision in the order of the snapshots, as each side makes it."""
        moment: dict[ViewParent, WithWrites] = {}
        folded: tuple[int, ...] = ()
        async with aclosing(self._history.decisions()) as decisions:  # lest its connection outlive an error
            async for past, asked in decisions:
                if not self._selection.has(past):
                    continue
                if self._began is not None and past.decided_at < self._began:  # its sequences are those of another log
                    yield (Judged(past=past, conclusion=None, obstacle=LOST),) * len(self._sides)
                    continue
                level = past.view, past.parent
                if moment and (past.basis.folded != folded or level in moment or len(moment) == MOST_AT_ONCE):
                    for judged in await self._judge(list(moment.values()), folded):
                        yield judged
                    moment.clear()
                folded = past.basis.folded
                moment[level] = past, asked
        if moment:
            for judged in await self._judge(list(moment.values()), folded):
                yield judged

    async def again(self, past: Decision) -> None:
        """Make the decision once more that `run` has just given: State is still as it saw it."""
        for side in self._sides:
            await self._judge_on(side, [past])

    async def _judge(self, made: Sequence[WithWrites], folded: tuple[int, ...]) -> list[tuple[Judged, ...]]:
        past = [each for each, _ in made]
        if len(folded) != len(self._at) or any(map(int.__lt__, folded, self._at)):
            return [(Judged(past=each, conclusion=None, obstacle=OUT_OF_ORDER),) * len(self._sides) for each in past]
        if folded != self._at:
            await self._tape.fold_up_to(folded)
            self._at = folded
        sides = [await self._judge_on(side, past) for side in self._sides]
        judged = zip((asked for _, asked in made), zip(*sides, strict=True), strict=True)
        return [tuple(replace(side, asked=asked) for side in each) for asked, each in judged]

    async def _judge_on(self, side: Judge, past: Sequence[Decision]) -> list[Judged]:
        views = side.rebuilt.program.views
        ready = set(side.rebuilt.readiness.views)
        early = {each.ordinal for each in past if each.view in views and each.view not in ready}
        judged = iter(await side.judge([each for each in past if each.ordinal not in early]))
        return [
            Judged(past=each, conclusion=None, obstacle=TOO_EARLY) if each.ordinal in early else next(judged)
            for each in past
        ]


def _moment(created: str) -> datetime | None:
    """The time at which a stream was made, as NATS writes it; None: it is not known."""
    try:
        return datetime.fromisoformat(created)
    except ValueError:
        return None
