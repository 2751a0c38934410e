"""Moments in the log, as people write them: a sequence number, a time, or how long ago."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from levelog.errors import ConfigurationError
from levelog.wire.records import LoggedRecord
from levelog_store.decide.decisions import Decision

_AGO: Final = re.compile(r"(\d+)([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Moment(Struct, frozen=True):
    """A place in the log: a sequence, or a time by what the records say."""

    sequence: int = 0
    time: datetime | None = None

    @classmethod
    def parse(cls, text: str, now: datetime) -> "Moment":
        """Read `812`, `2026-11-21T14:05:09Z` (UTC if no zone is given), or `15m` (s, m, h, d) for so long before `now`.

        Raises ConfigurationError.
        """
        if text.isdigit() and int(text) > 0 and len(text) < 19:
            return cls(sequence=int(text))
        if ago := _AGO.fullmatch(text):
            try:
                return cls(time=now - timedelta(**{_UNITS[ago[2]]: int(ago[1])}))
            except OverflowError as error:
                raise ConfigurationError(f"{text!r} is longer ago than there are dates") from error
        try:
            time = datetime.fromisoformat(text)
        except ValueError as error:
            raise ConfigurationError(
                f"{text!r} is no moment: write a sequence as in 812, a time as in 2026-11-21T14:05:09Z, or how long "
                "ago as in 15m"
            ) from error
        return cls(time=time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC))

    def precedes(self, logged: LoggedRecord) -> bool:
        """Tell whether a record came after the moment."""
        return self.is_before(logged.sequence, logged.record.time)

    def is_before(self, sequence: int, time: datetime) -> bool:
        """Tell whether the moment is before what took place at a sequence and a time."""
        return time > self.time if self.time is not None else sequence > self.sequence

    def has_seen(self, decision: Decision) -> bool:
        """Tell whether a decision was there at the moment."""
        return not self.is_before(decision.sequence, decision.decided_at)

    def is_later(self, other: "Moment") -> bool:
        """Tell whether another moment is before this one; False where one is a time and the other a sequence alone."""
        if other.time is not None:
            return self.time is not None and self.time > other.time
        return self.sequence > other.sequence > 0

    def __str__(self) -> str:
        return f"sequence {self.sequence}" if self.time is None else f"{self.time:%Y-%m-%d %H:%M:%S} UTC"
