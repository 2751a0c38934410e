"""Health of a processor's loop, for probes and metrics: whether it stalls, how long steps take, how far it lags."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final

from msgspec import Struct

from levelog_base.counting import counted
from levelog_base.wire.records import LoggedRecord
from levelog_log.reader import Reader
from levelog_processors.decide.tally import EvaluationBatch
from levelog_processors.fold.batches import Folded

log = logging.getLogger(__name__)

STALLED_SECONDS: Final = 8.0
"""One turn of the loop folds 1,000 records and decides on 256 levels; one that takes longer waits for something."""


class LoopHealth:
    """The loop reports its steps here: `on_fold` and `on_batch` get the result of each and its seconds.

    `on_turn` gets the records that were read, before they are folded.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.on_turn: Callable[[Sequence[LoggedRecord]], None] = lambda _records: None
        self.on_fold: Callable[[Folded, float], None] = lambda _folded, _seconds: None
        self.on_batch: Callable[[EvaluationBatch, float], None] = lambda _batch, _seconds: None
        self.is_behind = True
        """It folds history, and decides nothing before the log's end is reached."""
        self.clock = clock
        self.catching_up = CatchingUp(clock)
        self._busy_since: float | None = None
        self._at_hand: Sequence[LoggedRecord] = ()
        """Records of a turn that has not ended."""
        self._reader: Reader | None = None

    def take_up(self) -> None:
        """Note that partitions are being taken up: nothing is read until `begin`."""
        self._reader, self._at_hand, self._busy_since, self.is_behind = None, (), self.clock(), True

    def begin(self, reader: Reader) -> None:
        """Note that reading begins at the checkpoints."""
        self._reader, self._at_hand, self.is_behind = reader, (), True

    def turn(self, records: Sequence[LoggedRecord]) -> None:
        """Note that a turn begins, with these records to fold."""
        self._busy_since, self._at_hand = self.clock(), records
        self.on_turn(records)

    def rest(self) -> None:
        """Note that the loop waits for records, a notification or a time."""
        self._busy_since, self._at_hand = None, ()

    def note(self, began: float, *, folded: Folded | None = None, batch: EvaluationBatch | None = None) -> None:
        """Note what a step that began then, by `clock`, came to; if it did both, either counts with all its time."""
        seconds = self.clock() - began
        if folded is not None:
            self.on_fold(folded, seconds)
        if batch is not None:
            self.on_batch(batch, seconds)

    def trouble(self) -> str:
        """Why it decides nothing now; empty: it does, or has nothing to decide."""
        if self.is_behind:
            return "folds what it has not read of the log yet"
        if self._busy_since is None or (busy := self.clock() - self._busy_since) <= STALLED_SECONDS:
            return ""
        return f"its loop has been at one turn for {busy:.0f} s"

    def lag_seconds(self, now: datetime | None = None) -> float:
        """Age of the oldest record that has arrived and is not folded, or not decided on; 0 where there is none.

        While nothing is read, what arrives is not known, and the lag is as long as that takes.
        """
        if self._reader is None and self._busy_since is not None and not self._at_hand:
            return self.clock() - self._busy_since
        oldest = next(iter(self._at_hand), None) or (self._reader.oldest if self._reader is not None else None)
        if oldest is None:
            return 0.0
        return max(0.0, ((now or datetime.now(UTC)) - oldest.record.time).total_seconds())


TELL_EVERY: Final = timedelta(seconds=10)
"""As often as somebody would look at the progress bar of a first list."""


class WorkProgress(Struct, frozen=True, kw_only=True):
    """How far one thing is that takes long."""

    what: str
    """`index webs/images`"""
    done: int
    total: int
    unit: str
    """`objects`"""


class CatchingUp:
    """The way from where a processor begins to read to where the log ended then; the log of the process tells of it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` counts seconds."""
        self._clock = clock
        self._first = 0
        self._read_to = 0
        self._end = 0
        self._told_at: float | None = None
        """None: it has caught up."""

    @property
    def progress(self) -> WorkProgress | None:
        """How far it is; None: there is nothing to catch up with."""
        total = self._end - self._first
        if self._told_at is None or total <= 0:
            return None
        return WorkProgress(what="the log", done=min(self._read_to - self._first, total), total=total, unit="records")

    def go_on(self, first: int, read_to: int, end: int) -> None:
        """Record that everything from `first` to `read_to` is folded, and that the log ended at `end`."""
        if self._told_at is None:
            self._first, self._told_at = first, self._clock()
        self._read_to, self._end = read_to, end
        if self._clock() - self._told_at >= TELL_EVERY.total_seconds() and (progress := self.progress) is not None:
            self._told_at = self._clock()
            log.info("folds the log before it decides: %d of %s", progress.done, counted(progress.total, "record"))

    def reach(self) -> None:
        """Note that it has caught up."""
        self._told_at = None
