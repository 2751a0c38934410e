"""Which history of a PostgreSQL database a process works on."""

from typing import NamedTuple


class DatabaseTimeline(NamedTuple):
    """A database system, and how often a standby of it was promoted.

    Limit: two standbys that are promoted beside each other, without hearing of each other, begin the same timeline.
    """

    system: str
    """PostgreSQL's system identifier."""
    number: int

    def may_follow(self, other: "DatabaseTimeline") -> bool:
        """Whether who was there may be here: it is the same history, or one that began in it later."""
        return self.system == other.system and self.number >= other.number

    @property
    def shown(self) -> str:
        """How messages name it."""
        return f"timeline {self.number} of system {self.system}"
