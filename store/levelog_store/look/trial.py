"""Copies the tables of an application to try other code on them, and compares the decisions."""

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import Column, MetaData, Table, and_, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Asked
from levelog_store.dialects import fields
from levelog_store.fold.levelwrites import IS_HELD_CALL
from levelog_store.rows import UNSETTLED, Scope, Verdict, ViewParent
from levelog_store.tables import (
    actuators,
    call_positions,
    decisions,
    intents,
    leases,
    levels,
    metadata,
    processors,
    wakeups,
)

_PAGE: Final = 500
_LEFT: Final = (actuators, call_positions, decisions, processors)
"""Tables that no decision rests on; all others are copied."""
_beside: Final = MetaData()
_OF_INTENTS: Final = (intents.c.key, intents.c.state)
_OF_WAKEUPS: Final = (wakeups.c.view, wakeups.c.parent, wakeups.c.due_at)
_levels_before: Final = Table("levels_before", _beside, *(Column(each.name, each.type) for each in levels.columns))
_intents_before: Final = Table("intents_before", _beside, *(Column(each.name, each.type) for each in _OF_INTENTS))
_due_before: Final = Table("due_before", _beside, *(Column(each.name, each.type) for each in _OF_WAKEUPS))
_COMPARED: Final = Verdict.__struct_fields__


class LevelChange(Struct, frozen=True, kw_only=True):
    """A level before and after; None: there is none."""

    view: str
    parent: str
    before: Verdict | None
    after: Verdict | None

    @property
    def name(self) -> ViewParent:
        """View and parent."""
        return self.view, self.parent


class PlannedWrite(Asked, frozen=True, kw_only=True):
    """A write that was decided on the copy."""

    view: str
    parent: str


async def copy_scope(database: Database, scope: Scope, scratch: Database) -> None:
    """Copy all that a scope's decisions depend on, as of one moment, into an empty SQLite file without its leases.

    Nothing is written where it comes from; a page of rows is in memory at a time.
    """
    async with database.reading() as source, scratch.transaction() as target:
        for tables in (metadata, _beside):
            await target.run_sync(tables.create_all, checkfirst=False)
        for table in (each for each in metadata.sorted_tables if each not in _LEFT):
            are_wanted = table.c.scope == scope.number, *([~IS_HELD_CALL] if table is levels else [])
            query = select(table).where(*are_wanted)
            async with source.stream(query.execution_options(yield_per=_PAGE)) as rows:
                async for page in rows.mappings().partitions():
                    await target.execute(insert(table), [dict(row) for row in page])
        await target.execute(update(leases).values(owner="", expires_at=None))
        for kept, table in ((_levels_before, levels), (_intents_before, intents), (_due_before, wakeups)):
            names = [column.name for column in kept.columns]
            wanted = select(*(table.c[name] for name in names))
            await target.execute(insert(kept).from_select(names, wanted))


async def count_levels(connection: AsyncConnection) -> Mapping[str, int]:
    """Levels of each view of a copy."""
    rows = await connection.execute(select(levels.c.view, func.count().label("levels")).group_by(levels.c.view))
    return {row.view: row.levels for row in rows}


async def read_planned_writes(connection: AsyncConnection) -> AsyncIterator[PlannedWrite]:
    """Writes that a copy has and its original had not, but for those that would change nothing, in their order."""
    query = (
        select(*fields(PlannedWrite, intents))
        .outerjoin(_intents_before, _intents_before.c.key == intents.c.key)
        .where(_intents_before.c.key.is_(None), intents.c.state == "pending")
        .order_by(intents.c.view, intents.c.parent, intents.c.round, intents.c.ordinal)
    )
    async for row in (await connection.stream(query.execution_options(yield_per=_PAGE))).mappings():
        yield PlannedWrite(**row)


async def count_dropped_writes(connection: AsyncConnection) -> int:
    """Writes that were decided and not sent when a copy was made, and that the other code supersedes."""
    both = intents.join(_intents_before, _intents_before.c.key == intents.c.key)
    is_dropped = _intents_before.c.state == "pending", intents.c.state == "superseded"
    return int(await connection.scalar(select(func.count()).select_from(both).where(*is_dropped)) or 0)


async def read_due(connection: AsyncConnection, at: datetime) -> set[ViewParent]:
    """Levels that were to be decided on by then when a copy was made, whatever the code."""
    table = _due_before.c
    is_due = or_(table.due_at.is_(None), table.due_at <= at)
    rows = await connection.execute(select(table.view, table.parent).where(is_due))
    return {(row.view, row.parent) for row in rows}


async def read_woken_views(connection: AsyncConnection, at: datetime) -> list[str]:
    """Views of a copy that have levels to decide on by then, by name."""
    table = wakeups.c
    is_due = or_(table.due_at.is_(None), table.due_at <= at)
    rows = await connection.execute(select(table.view).where(is_due).distinct().order_by(table.view))
    return list(rows.scalars())


async def read_waiting(connection: AsyncConnection) -> list[ViewParent]:
    """Levels that wait for writes which were under way when a copy was made, by view and parent."""
    query = (
        select(intents.c.view, intents.c.parent)
        .join(_intents_before, _intents_before.c.key == intents.c.key)
        .where(intents.c.state.in_(UNSETTLED))
        .distinct()
        .order_by(intents.c.view, intents.c.parent)
    )
    return [(row.view, row.parent) for row in await connection.execute(query)]


async def read_changed_levels(connection: AsyncConnection) -> AsyncIterator[LevelChange]:
    """Levels of a copy that are not as they were when it was made, new ones too; then those that are gone."""
    before, after = _levels_before.c, levels.c
    same = and_(before.view == after.view, before.parent == after.parent)
    differs = or_(*(after[name].is_distinct_from(before[name]) for name in _COMPARED))
    columns = [
        *(after[name].label(f"after_{name}") for name in ("view", "parent", *_COMPARED)),
        *(before[name].label(f"before_{name}") for name in ("view", "parent", *_COMPARED)),
    ]
    here = select(*columns).select_from(levels.outerjoin(_levels_before, same)).where(differs)
    gone = select(*columns).select_from(_levels_before.outerjoin(levels, same)).where(after.view.is_(None))
    for query in (here.order_by(after.view, after.parent), gone.order_by(before.view, before.parent)):
        async for row in (await connection.stream(query.execution_options(yield_per=_PAGE))).mappings():
            sides = [_side(row, prefix) for prefix in ("before", "after")]
            prefix = "after" if sides[1] is not None else "before"
            yield LevelChange(
                view=row[f"{prefix}_view"], parent=row[f"{prefix}_parent"], before=sides[0], after=sides[1]
            )


def _side(row: Mapping[Any, Any], prefix: str) -> Verdict | None:
    if row[f"{prefix}_view"] is None:
        return None
    return Verdict(**{name: row[f"{prefix}_{name}"] for name in _COMPARED})
