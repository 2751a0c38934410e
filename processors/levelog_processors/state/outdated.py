"""Levels that the code has not decided on since it changed: in memory they are unknown, in the tables as they were."""

from collections import Counter
from collections.abc import Mapping
from operator import attrgetter
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from levelog_store.decide.decisions import Decided
from levelog_store.owners.handlers import CHANGED_CODE, Kind
from levelog_store.rows import LevelRow, ViewParent

_COURSE: Final = ("evaluations", "versions", "cause", "suppressed", "evaluated_at", "decided_at", "since")
"""What a decision always says anew of a level."""
_standing: Final = attrgetter(*(name for name in LevelRow.__struct_fields__ if name not in _COURSE))


def as_left(row: LevelRow, unfinished: Mapping[tuple[str, int], Kind]) -> LevelRow:
    """A level as it is decided on with what changed code has not finished, by name and partition; others stay."""
    kind = unfinished.get((row.view, row.partition))
    if kind == "view":
        return row.unknown(CHANGED_CODE)
    is_open = row.status == "settling" or (row.drift is not None and row.status not in ("in_sync", "deleting"))
    if kind == "reconcile" and is_open:
        return replace(row, decided_inputs="", attempts=0)
    return row


class Outdated(Struct):
    """Levels of leased partitions that changed code has to decide on once."""

    partition_of: dict[ViewParent, int] = {}
    _rows: dict[ViewParent, LevelRow] = {}
    """As the tables have them, if they have them."""
    _left: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    """How many there are, by view and partition."""

    def __contains__(self, level: ViewParent) -> bool:
        return level in self.partition_of

    def add(self, level: ViewParent, partition: int, row: LevelRow | None = None) -> None:
        """Note a level, and how the tables have it."""
        if level not in self.partition_of:
            self.partition_of[level] = partition
            self._left[level[0], partition] += 1
        if row is not None:
            self._rows[level] = row

    def change(self, level: ViewParent) -> None:
        """Note that the tables have something else of a level from now on."""
        self._rows.pop(level, None)

    def end(self, level: ViewParent) -> bool:
        """Forget a level that is decided on or gone; tells whether it was one of these."""
        partition = self.partition_of.pop(level, None)
        if partition is None:
            return False
        self._rows.pop(level, None)
        self._left[level[0], partition] -= 1
        return True

    def is_any_of(self, view: str, partition: int) -> bool:
        """Tell whether levels of a view are left in a partition."""
        return self._left[view, partition] > 0

    def confirmed(self, decided: Decided) -> Decided | None:
        """The decision with the level's row, if that comes out as the tables have it and nothing else follows."""
        row = self._rows.get(decided.name)
        if row is None or decided.withdraws or decided.intents or decided.settled or decided.withdrawn:
            return None
        if decided.dependencies_added or decided.dependencies_removed or _standing(row) != _standing(decided.level):
            return None
        return replace(decided, level=replace(row, versions_digest=decided.level.versions_digest))
