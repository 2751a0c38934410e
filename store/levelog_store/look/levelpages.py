"""The levels of an application a page at a time, chosen, ordered and cut in SQL. Reads only."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct
from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.dialects import one_of
from levelog_store.look.overview import LevelLine, is_named, level_line, select_levels, with_waits
from levelog_store.rows import STATUSES, Scope
from levelog_store.tables import levels

LevelOrder: TypeAlias = Literal["since", "newest", "parent", "view", "round"]
"""`since`: those first that are so for the longest; `newest`: for the shortest; `round`: most rounds first."""
OUT_OF_SYNC: Final = tuple(status for status in STATUSES if status != "in_sync")
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SINCE: Final = func.coalesce(levels.c.since, levels.c.evaluated_at, _EARLIEST, type_=levels.c.since.type)
_KEYS: Final[dict[LevelOrder, tuple[tuple[ColumnElement[Any], bool], ...]]] = {
    "since": ((_SINCE, True), (levels.c.parent, True), (levels.c.view, True)),
    "newest": ((_SINCE, False), (levels.c.parent, True), (levels.c.view, True)),
    "parent": ((levels.c.parent, True), (levels.c.view, True)),
    "view": ((levels.c.view, True), (levels.c.parent, True)),
    "round": ((levels.c.round, False), (levels.c.parent, True), (levels.c.view, True)),
}
"""Columns to order by, and whether upwards; the last two tell any two levels apart."""


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
    connection: AsyncConnection, scope: Scope, wanted: LevelQuery, *, after: LevelLine | None, most: int
) -> list[LevelLine]:
    """At most so many levels, after the last one of the page before."""
    query = select_levels().where(is_named(levels, scope, wanted.view, wanted.name))
    if wanted.statuses:
        query = query.where(one_of(connection.dialect, levels.c.status, wanted.statuses))
    keys = _KEYS[wanted.order]
    if after is not None:
        query = query.where(_follows(keys, _values(wanted.order, after)))
    ordered = query.order_by(*(column if is_up else column.desc() for column, is_up in keys)).limit(most)
    rows = await connection.execute(ordered)
    return await with_waits(connection, scope, [level_line(row) for row in rows.mappings()], are_few=True)


def _follows(keys: Sequence[tuple[ColumnElement[Any], bool]], values: Sequence[Any]) -> ColumnElement[bool]:
    """Condition that a row comes after one with the values."""
    choices: list[ColumnElement[bool]] = []
    for number, ((column, is_up), value) in enumerate(zip(keys, values, strict=True)):
        alike = [other == same for (other, _), same in zip(keys[:number], values, strict=False)]
        choices.append(and_(*alike, column > value if is_up else column < value))
    return or_(*choices)


def _values(order: LevelOrder, line: LevelLine) -> tuple[Any, ...]:
    since = line.since or line.evaluated_at or _EARLIEST
    match order:
        case "since" | "newest":
            return since, line.parent, line.view
        case "parent":
            return line.parent, line.view
        case "view":
            return line.view, line.parent
        case "round":
            return line.round, line.parent, line.view


def in_order(lines: Iterable[LevelLine], order: LevelOrder) -> list[LevelLine]:
    """The same order for levels that are in no database."""
    found = sorted(lines, key=lambda line: (line.parent, line.view))
    first = {"newest", "round"}
    return sorted(found, key=lambda line: _values(order, line)[0], reverse=order in first)


async def count_levels(connection: AsyncConnection, scope: Scope) -> dict[str, int]:
    """How many levels have each status."""
    status, of_scope = levels.c.status, levels.c.scope == scope.number
    rows = await connection.execute(select(status, func.count().label("levels")).where(of_scope).group_by(status))
    return {row.status: row.levels for row in rows}
