"""The levels of an application, chosen, ordered and cut in SQL. Reads only."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from sqlalchemy import func
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.dialects import one_of
from levelog_store.fold.levelwrites import AS_LEFT, levels_as_left
from levelog_store.look.overview import LevelLine, in_status, is_named, level_line, select_levels
from levelog_store.rows import STATUSES, Scope
from levelog_store.tables import levels

LevelOrder: TypeAlias = Literal["since", "newest", "parent", "view", "round"]
"""`since`: those first that are so for the longest; `newest`: for the shortest; `round`: most rounds first."""
OUT_OF_SYNC: Final = tuple(status for status in STATUSES if status != "in_sync")
_KEYS: Final[dict[LevelOrder, tuple[tuple[str, bool], ...]]] = {
    "since": (("since", True), ("parent", True), ("view", True)),
    "newest": (("since", False), ("parent", True), ("view", True)),
    "parent": (("parent", True), ("view", True)),
    "view": (("view", True), ("parent", True)),
    "round": (("round", False), ("parent", True), ("view", True)),
}
"""Columns to order by, and whether upwards; view and parent tell any two levels apart."""


class LevelQuery(Struct, frozen=True, kw_only=True):
    """Which levels, in which order."""

    statuses: Sequence[str] = OUT_OF_SYNC
    """Empty: any."""
    view: str = ""
    """With its operator, or without."""
    name: str = ""
    """A parent, or how its name ends."""
    order: LevelOrder = "since"


async def read_level_page(
    connection: AsyncConnection, scope: Scope, wanted: LevelQuery, *, most: int
) -> list[LevelLine]:
    """The first so many levels; what they wait for is left to `with_waits`."""
    keys = _KEYS[wanted.order]
    query = select_levels().where(is_named(levels, scope, wanted.view, wanted.name))
    columns = [(levels.c[name], is_up) for name, is_up in keys]
    query = query.order_by(*(column if is_up else column.desc() for column, is_up in columns)).limit(most)
    statuses = wanted.statuses or STATUSES
    if keys[0][0] == "since":  # each status is in this order in an index
        chosen = [each for status in statuses for each in in_status(query, status)]
    else:
        chosen = [query.where(one_of(connection.dialect, AS_LEFT["status"], statuses)) if wanted.statuses else query]
    found = [level_line(row) for each in chosen for row in (await connection.execute(each)).mappings()]
    return in_order(found, wanted.order)[:most]


def in_order(lines: Iterable[LevelLine], order: LevelOrder) -> list[LevelLine]:
    """Levels in the same order, whatever database they are in."""
    found = list(lines)
    for name, is_up in reversed(_KEYS[order]):
        found.sort(key=attrgetter(name), reverse=not is_up)
    return found


async def count_levels(connection: AsyncConnection, scope: Scope) -> dict[str, int]:
    """How many levels have each status."""
    counted = levels_as_left(["status"]).add_columns(func.count()).group_by(AS_LEFT["status"])
    rows = await connection.execute(counted.where(levels.c.scope == scope.number))
    return {row[0]: row[1] for row in rows}
