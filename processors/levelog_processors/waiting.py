"""When a processor has something to decide, so that the tables are not asked at each cut."""

import asyncio
from datetime import datetime, timedelta
from typing import Final

SAFETY_SWEEP: Final = timedelta(seconds=10)
"""How long a wakeup can wait whose hint was lost; the tables are read then, no handler is called for it."""


class Agenda:
    """Wakeups that are known to be there, and the time of the next one that waits for its time.

    What other processors put into the tables is told by a hint, or found by the sweep.
    """

    def __init__(self) -> None:
        self._now = asyncio.get_running_loop().time
        self._is_open = True
        self._sweep_at = self._now() + SAFETY_SWEEP.total_seconds()
        self._due_at: float | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether there may be wakeups to decide on now."""
        return self._is_open or self.wait == timedelta(0)

    @property
    def is_overdue(self) -> bool:
        """Tell whether it is time to ask the tables what is due next: after a due time, a sweep, or never yet."""
        now = self._now()
        return self._due_at is None or now >= self._due_at or now >= self._sweep_at

    @property
    def wait(self) -> timedelta:
        """Time until there may be wakeups although nobody says so."""
        first = self._sweep_at if self._due_at is None else min(self._sweep_at, self._due_at)
        return timedelta(seconds=max(0.0, first - self._now()))

    def open(self) -> None:
        """Note that wakeups are there, or may be."""
        self._is_open = True

    def close(self) -> None:
        """Note that the wakeups which are due have been looked at."""
        self._is_open = False

    def expect(self, due_at: datetime, now: datetime) -> None:
        """Note that a wakeup waits for its time."""
        at = self._now() + (due_at - now).total_seconds()
        self._due_at = at if self._due_at is None else min(self._due_at, at)

    def plan(self, next_due: tuple[datetime, datetime] | None) -> None:
        """Take what the tables say is due next, with their time, and begin the next sweep."""
        self._sweep_at = self._now() + SAFETY_SWEEP.total_seconds()
        self._due_at = self._sweep_at
        if next_due is not None:
            self.expect(*next_due)
