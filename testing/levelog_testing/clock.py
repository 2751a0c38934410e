"""The time of a simulation."""

from datetime import datetime


class Clock:
    """The time of a simulation, which only `advance` moves."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """Tell the time."""
        return self.now
