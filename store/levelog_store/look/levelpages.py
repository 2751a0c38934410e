"""The levels of an application, and the parents without one, chosen, ordered and cut in SQL. Reads only."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct
from sqlalchemy import ColumnElement, Select, Subquery, Table, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_base.errors import ConfigurationError
from levelog_store.fold.levelwrites import AS_LEFT, IS_OUTDATED, levels_as_left
from levelog_store.look.overview import RETRIES, LevelLine, level_line, with_waits
from levelog_store.owners.handlers import UNRECORDED
from levelog_store.rows import STATUSES, Scope
from levelog_store.tables import backfills, handlers, levels, objects, wakeups

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
    """Which levels, in which order; an empty field leaves all in. Raises ConfigurationError for an unknown status."""

    statuses: Sequence[str] = ()
    view: str = ""
    """With its operator, or without."""
    name: str = ""
    """A parent's full name, or how it ends: `default/shop`, `shop`."""
    order: LevelOrder = "view"

    def __post_init__(self) -> None:
        for status in self.statuses:
            if status not in STATUSES:
                raise ConfigurationError(f"there is no status {status!r}: it is one of {', '.join(STATUSES)}")

    def takes(self, status: str) -> bool:
        """Tell whether levels of a status are among them."""
        return not self.statuses or status in self.statuses


ALL: Final = LevelQuery()


async def read_level_lines(connection: AsyncConnection, scope: Scope, wanted: LevelQuery = ALL) -> list[LevelLine]:
    """Levels and parents without one, in their order, with what they wait for."""
    lines = [*await read_level_page(connection, scope, wanted), *await read_unlevelled(connection, scope, wanted)]
    return in_order(await with_waits(connection, scope, lines), wanted.order)


async def read_level_page(
    connection: AsyncConnection, scope: Scope, wanted: LevelQuery, *, most: int | None = None
) -> list[LevelLine]:
    """The first so many levels; what they wait for is left to `with_waits`."""
    keys = _KEYS[wanted.order]
    shown = ("view", "parent", "status", "reason", "drift", "round", "evaluated_at", "since", "position", *RETRIES)
    columns = [(levels.c[name], is_up) for name, is_up in keys]
    query = levels_as_left(shown).where(_is_named(levels, scope, wanted)).limit(most)
    query = query.order_by(*(column if is_up else column.desc() for column, is_up in columns))
    # each status is in the order of `since` in an index
    statuses = wanted.statuses or (STATUSES if keys[0][0] == "since" else ())
    chosen = [each for status in statuses for each in _in_status(query, status)] or [query]
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


async def read_unlevelled(connection: AsyncConnection, scope: Scope, wanted: LevelQuery) -> list[LevelLine]:
    """Parents that were never evaluated, and have no level.

    A call without records is not one, which may have been made since somebody asked for it.
    """
    level, wake, handler, held, job = levels.c, wakeups.c, handlers.c, objects.c, backfills.c
    if not wanted.takes("blocked"):
        return []
    of_job = job.scope == held.scope, job.resource == held.resource, job.partition == held.partition, job.kind == "view"
    left = select(held.scope, job.name, held.object).join(backfills, and_(*of_job)).where(held.scope == scope.number)
    asked = select(wake.scope, wake.view, wake.parent).where(wake.scope == scope.number).union(left).subquery()
    of_level = and_(level.scope == asked.c.scope, level.view == asked.c.view, level.parent == asked.c.parent)
    waiting = select(asked.c.view, asked.c.parent).outerjoin(levels, of_level).where(level.scope.is_(None))
    calls = select(handler.name).where(handler.scope == scope.number, handler.kind.in_(UNRECORDED))
    waiting = waiting.where(_is_named(asked, scope, wanted), asked.c.view.not_in(calls))
    found = await connection.execute(waiting)
    return [LevelLine(view=each.view, parent=each.parent, status="blocked") for each in found]


def _in_status(query: Select[Any], status: str) -> list[Select[Any]]:
    """The levels of a query with a status, as queries that an index answers."""
    known = query.where(levels.c.status == status)
    if status != "blocked":
        return [known.where(~IS_OUTDATED)]
    return [known, query.where(levels.c.status != status, IS_OUTDATED)]


def _is_named(table: Table | Subquery, scope: Scope, query: LevelQuery) -> ColumnElement[bool]:
    """Condition that a row is of the view and the parent that are asked for."""
    wanted = [table.c.scope == scope.number]
    for column, ending in ((table.c.view, query.view), (table.c.parent, query.name)):
        if ending:
            wanted.append(or_(column == ending, column.endswith(f"/{ending}", autoescape=True)))
    return and_(*wanted)
