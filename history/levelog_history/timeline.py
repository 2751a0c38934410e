"""Decisions on the timeline of the log: each stands below the last record that was folded when it was made."""

from collections.abc import AsyncIterator
from typing import TypeVar

from msgspec import Struct

from levelog.wire.objects import Application
from levelog_history.moments import Moment
from levelog_store.decide.decisions import Asked, Decision

T = TypeVar("T")


class Decided(Struct, frozen=True, kw_only=True):
    """A decision, with what it asked for."""

    application: Application
    decision: Decision
    writes: list[Asked]
    """As far as they are kept."""

    @property
    def after(self) -> int:
        """Sequence of the record below which it stands.

        All that it saw is at or above that place. All that came of it is below: receipts and what they led to were
        recorded later.
        """
        return self.decision.seen_to

    def is_after(self, moment: Moment) -> bool:
        """Tell whether it was made after a moment."""
        if moment.time is not None:
            return self.decision.decided_at > moment.time
        return self.after >= moment.sequence


async def interleaved(
    entries: AsyncIterator[tuple[T, int]], decided: AsyncIterator[Decided]
) -> AsyncIterator[tuple[T | Decided, int]]:
    """Put decisions between entries; both come in their order, an entry with its sequence."""
    ahead = await anext(decided, None)
    async for entry, sequence in entries:
        while ahead is not None and ahead.after < sequence:
            yield ahead, ahead.after
            ahead = await anext(decided, None)
        yield entry, sequence
    while ahead is not None:
        yield ahead, ahead.after
        ahead = await anext(decided, None)
