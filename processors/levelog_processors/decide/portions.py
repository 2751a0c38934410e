"""How many levels are decided on at once."""

from collections.abc import Callable
from time import thread_time
from typing import Final

from levelog_processors.decide.tally import BATCH, EvaluationBatch

LEAST: Final = 32
"""Fewer levels at once would take half as much again: what a transaction costs by itself is worth some 15 levels."""
LONG_SECONDS: Final = 0.04
"""Processor time of the event loop; what comes meanwhile waits, whatever namespace it is of."""


class Portion:
    """So many levels that a batch takes no more than a moment, but at least `LEAST`."""

    def __init__(self, clock: Callable[[], float] = thread_time) -> None:
        """`clock` counts seconds."""
        self._clock = clock
        self._began = 0.0
        self._most = LEAST

    def begin(self) -> int:
        """Note that a batch begins; it is to take at most so many levels."""
        self._began = self._clock()
        return self._most

    def end(self, batch: EvaluationBatch) -> None:
        """Note that it has ended: after a long one the next has half as many levels, after a short full one twice."""
        seconds = self._clock() - self._began
        if seconds > LONG_SECONDS:
            self._most = max(LEAST, min(self._most, len(batch.decided) // 2))
        elif len(batch.decided) >= self._most and seconds < LONG_SECONDS / 2:
            self._most = min(BATCH, 2 * self._most)
