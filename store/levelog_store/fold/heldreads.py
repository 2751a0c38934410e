"""Reads for a fold: the rows of the objects in its batch."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Dialect, Select, Table, and_, or_, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.dialects import OF_SCOPE, among, built_once, many, many_pairs, one_of, one_of_named
from levelog_store.fold.changes import ExpiredEntry, Held, HeldLevel, HeldObject, HeldTombstone, Unlisted
from levelog_store.rows import Entry, Input, Scope, SyncRow, ViewParent
from levelog_store.tables import (
    checkpoints,
    index_entries,
    levels,
    objects,
    syncs,
    tombstones,
)

_ENTRY = tuple(index_entries.c[name] for name in Entry.__struct_fields__)


async def read_held(
    connection: AsyncConnection,
    scope: Scope,
    names: Collection[str],
    *,
    indexed: Collection[str],
    has_parents: bool,
) -> Held:
    """What the tables hold of the named objects: entries of those that are `indexed`, levels if some have any."""
    held = Held()
    if not names:
        return held
    dialect = connection.dialect
    rows = await connection.execute(_objects(dialect, has_levels=has_parents), _of(dialect, scope, names))
    for row in rows:
        name, uid, version, *level = tuple[Any, ...](row)
        held.objects[name] = HeldObject(uid, version)
        if level and level[0] is not None:
            held.levels[level[0], name] = HeldLevel(*level[1:])
    absent = [name for name in names if name not in held.objects]
    if absent:
        rows = await connection.execute(_tombstones(dialect), _of(dialect, scope, absent))
        held.tombstones = {name: HeldTombstone(uid, version) for name, uid, version in rows}
    known = held.objects.keys()
    if with_entries := [name for name in indexed if name in known]:
        held.entries = await read_entries(connection, scope, with_entries)
    return held


async def read_entries(connection: AsyncConnection, scope: Scope, names: Collection[str]) -> dict[str, list[Entry]]:
    """Index entries of the named objects."""
    dialect = connection.dialect
    rows = await connection.execute(_entries(dialect), _of(dialect, scope, names))
    entries: dict[str, list[Entry]] = {}
    for name, *values in rows:
        entries.setdefault(name, []).append(Entry(*values))
    return entries


async def read_rounds(
    connection: AsyncConnection, scope: Scope, of: Collection[ViewParent]
) -> dict[ViewParent, tuple[str, int]]:
    """Uid of the parent, and round, of levels."""
    dialect = connection.dialect
    values = {"of_scope": scope.number, **many_pairs(dialect, sorted(of))}
    rows = await connection.execute(_rounds(dialect), values)
    return {(view, parent): (uid, round_) for view, parent, uid, round_ in rows}


@built_once
def _rounds(dialect: Dialect) -> Select[str, str, str, int]:
    table = levels.c
    source, is_there = among(dialect, (table.view, table.parent))
    return select(table.view, table.parent, table.parent_uid, table.round).select_from(source).where(is_there)


@built_once
def _objects(dialect: Dialect, *, has_levels: bool) -> Select[Any]:
    """With the levels that they are parents of, a row each."""
    table, level = objects.c, levels.c
    columns: list[ColumnElement[Any]] = [table.object, table.uid, table.version]
    if not has_levels:
        return select(*columns).where(_named(dialect, objects))
    columns += [level.view, level.parent_uid, level.inputs, level.looked_at, level.round]
    is_parent = and_(level.scope == OF_SCOPE, level.parent == table.object)
    return select(*columns).outerjoin(levels, is_parent).where(_named(dialect, objects))


@built_once
def _tombstones(dialect: Dialect) -> Select[str, str, int]:
    table = tombstones.c
    return select(table.object, table.uid, table.version).where(_named(dialect, tombstones))


@built_once
def _entries(dialect: Dialect) -> Select[Any]:
    return select(index_entries.c.object, *_ENTRY).where(_named(dialect, index_entries))


def _named(dialect: Dialect, table: Table) -> ColumnElement[bool]:
    return and_(table.c.scope == OF_SCOPE, one_of_named(dialect, table.c.object, "names"))


def _of(dialect: Dialect, scope: Scope, names: Collection[str]) -> dict[str, Any]:
    return {"of_scope": scope.number, "names": many(dialect, names)}


async def read_times(connection: AsyncConnection, scope: Scope) -> dict[int, datetime]:
    """Time of each partition, by its own records."""
    table = checkpoints.c
    rows = await connection.execute(
        select(table.partition, table.time).where(table.scope == scope.number, table.time.is_not(None))
    )
    return dict(rows.all())


async def read_expired(
    connection: AsyncConnection, scope: Scope, partitions: Collection[int], until: datetime
) -> list[ExpiredEntry]:
    """Entries of objects in the partitions that expire up to a time."""
    rows = await connection.execute(
        select(objects.c.object, objects.c.partition, *_ENTRY)
        .join(objects, and_(objects.c.scope == index_entries.c.scope, objects.c.object == index_entries.c.object))
        .where(
            index_entries.c.scope == scope.number,
            index_entries.c.expires_at.is_not(None),
            index_entries.c.expires_at <= until,
            one_of(connection.dialect, objects.c.partition, partitions),
        )
        .order_by(index_entries.c.object, index_entries.c.index, index_entries.c.key, index_entries.c.ordinal)
    )
    found: list[ExpiredEntry] = []
    for row in rows.mappings():
        entry = Entry(**{field: row[field] for field in Entry.__struct_fields__})
        found.append(ExpiredEntry(row["object"], row["partition"], entry))
    return found


async def read_syncs(connection: AsyncConnection, scope: Scope) -> dict[Input, SyncRow]:
    """Lists begun and completed, for each partition and resource."""
    columns = [syncs.c[name] for name in SyncRow.__struct_fields__]
    rows = await connection.execute(select(*columns).where(syncs.c.scope == scope.number))
    return {(row["partition"], row["resource"]): SyncRow(**row) for row in rows.mappings()}


async def read_unlisted(
    connection: AsyncConnection,
    scope: Scope,
    partition: int,
    resource: str,
    *,
    namespaces: Collection[str],
    before: int,
    version: int,
) -> list[Unlisted]:
    """Objects of a partition that a complete list left out: no record since `before`, not newer than `version`.

    The list covered these namespaces, or all if there are none. What is held of others is watched no more.
    """
    is_covered = one_of(connection.dialect, objects.c.namespace, list(namespaces)) if namespaces else true()
    columns = [objects.c[name] for name in Unlisted.__struct_fields__]
    rows = await connection.execute(
        select(*columns).where(
            objects.c.scope == scope.number,
            objects.c.resource == resource,
            objects.c.partition == partition,
            objects.c.sequence < before,
            or_(objects.c.version <= version, ~is_covered),
        )
    )
    return [Unlisted(**row) for row in rows.mappings()]
