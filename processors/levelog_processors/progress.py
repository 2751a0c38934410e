"""Progress of long work: reading the log up to its end."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from msgspec import Struct

from levelog_base.counting import counted

log = logging.getLogger(__name__)

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
