"""What a processor waits for between two cuts: records, a hint, or the time of a wakeup."""

import asyncio
from datetime import datetime, timedelta
from typing import Final

from levelog.wire.records import LoggedRecord
from levelog_log.hints import Hint
from levelog_log.reader import Reader

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


FOLD_BATCH: Final = 1000


class Arrivals:
    """What a processor waits for between two cuts: records, or a hint."""

    def __init__(self, reader: Reader, hint: Hint) -> None:
        self._reader = reader
        self._hint = hint
        self._reading: asyncio.Task[list[LoggedRecord]] | None = None
        self.seen_to = reader.seen_to
        """Up to here every record was handed out; the reader itself may be further."""

    async def records(self) -> list[LoggedRecord]:
        """Return the records that are there now."""
        if self._reading is None:
            found = await self._reader.next_batch(FOLD_BATCH, timedelta(0))
        elif self._reading.done():
            reading, self._reading = self._reading, None
            found = reading.result()
        else:
            return []
        self.seen_to = self._reader.seen_to
        return found

    async def wait(self, timeout: timedelta) -> bool:  # noqa: ASYNC109
        """Wait for records or a hint, at most for the time-out; tells whether a hint came."""
        self._reading = self._reading or asyncio.create_task(self._reader.next_batch(FOLD_BATCH))
        hinted = asyncio.create_task(self._hint.wait(timeout))
        try:
            await asyncio.wait((self._reading, hinted), return_when=asyncio.FIRST_COMPLETED)
        finally:
            hinted.cancel()
            (result,) = await asyncio.gather(hinted, return_exceptions=True)
        return result is True

    async def close(self) -> None:
        """Stop reading ahead."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
