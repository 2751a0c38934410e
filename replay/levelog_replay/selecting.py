"""Which decisions are made again."""

from collections.abc import Callable

from msgspec import Struct

from levelog.wire.objects import ObjectKey
from levelog_history.moments import Moment
from levelog_store.decide.decisions import Decision


class Selection(Struct, frozen=True, kw_only=True):
    """What is empty or None leaves all in."""

    start: Moment | None = None
    """Decisions made before this record was folded, or before this time, are left out."""
    end: Moment | None = None
    """Decisions that a later record led to, or that were made later, are left out."""
    views: frozenset[str] = frozenset()
    """Names, `operator/view`."""
    has_parent: Callable[[ObjectKey], bool] | None = None

    def has(self, past: Decision) -> bool:
        """Tell whether a decision is among them."""
        if self.views and past.view not in self.views:
            return False
        if self.has_parent is not None and not self.has_parent(ObjectKey.parse(past.parent)):
            return False
        if self.start is not None and self._is_before(past, self.start):
            return False
        return self.end is None or not self.end.is_before(past.cause, past.decided_at)

    def _is_before(self, past: Decision, moment: Moment) -> bool:
        return past.decided_at < moment.time if moment.time is not None else past.seen_to < moment.sequence
