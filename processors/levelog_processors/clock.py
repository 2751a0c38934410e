"""The database's clock, as far as one process can tell it between two looks."""

from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic
from typing import Final

JITTER: Final = timedelta(seconds=1)
"""A look that takes long tells an older time; a clock that was set back is further behind."""


class DatabaseClock:
    """Goes with this process's monotonic clock from the last look on, and back only if the database's was set back."""

    def __init__(self, elapsed: Callable[[], float] = monotonic) -> None:
        """`elapsed` counts seconds."""
        self._elapsed = elapsed
        self._moment: datetime | None = None
        self._at = 0.0

    def look(self, moment: datetime) -> None:
        """Take the time that the database has just told."""
        if self._moment is not None and timedelta(0) < self.now() - moment < JITTER:
            return
        self._moment, self._at = moment, self._elapsed()

    def now(self) -> datetime:
        """The time now. Raises ValueError before the first look."""
        if self._moment is None:
            raise ValueError("the database's clock was not looked at yet")
        return self._moment + timedelta(seconds=self._elapsed() - self._at)
