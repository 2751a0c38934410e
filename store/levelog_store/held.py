"""What folds read: what the tables hold of the objects of a batch."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import and_, or_, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.clauses import one_of, one_of_numbers
from levelog_store.rows import (
    Entry,
    ExpiredEntry,
    Held,
    HeldLevel,
    HeldObject,
    HeldTombstone,
    Input,
    StoredObject,
    SyncRow,
)
from levelog_store.tables import (
    checkpoints,
    index_entries,
    levels,
    objects,
    syncs,
    tombstones,
)

_ENTRY = tuple(index_entries.c[name] for name in Entry.__struct_fields__)

UNSETTLED = ("pending", "claimed", "written")


async def read_held(
    connection: AsyncConnection,
    scope: int,
    names: Collection[str],
    *,
    indexed: Collection[str],
    parents: Collection[str],
) -> Held:
    """What the tables hold of the named objects; entries and levels only of those that can have any."""
    held = Held()
    if not names:
        return held
    dialect = connection.dialect
    rows = await connection.execute(
        select(objects.c.object, objects.c.uid, objects.c.version).where(
            objects.c.scope == scope, one_of(dialect, objects.c.object, names)
        )
    )
    held.objects = {name: HeldObject(uid, version) for name, uid, version in rows}
    absent = [name for name in names if name not in held.objects]
    if absent:
        rows = await connection.execute(
            select(tombstones.c.object, tombstones.c.uid, tombstones.c.version).where(
                tombstones.c.scope == scope, one_of(dialect, tombstones.c.object, absent)
            )
        )
        held.tombstones = {name: HeldTombstone(uid, version) for name, uid, version in rows}
    known = held.objects.keys()
    if with_entries := [name for name in indexed if name in known]:
        held.entries = await read_entries(connection, scope, with_entries)
    if with_levels := [name for name in parents if name in known]:
        of_levels = await connection.execute(
            select(levels.c.view, levels.c.parent, levels.c.parent_uid, levels.c.inputs, levels.c.looked_at).where(
                levels.c.scope == scope, one_of(dialect, levels.c.parent, with_levels)
            )
        )
        held.levels = {(view, parent): HeldLevel(*values) for view, parent, *values in of_levels}
    return held


async def read_entries(connection: AsyncConnection, scope: int, names: Collection[str]) -> dict[str, list[Entry]]:
    """Index entries of the named objects."""
    table = index_entries.c
    rows = await connection.execute(
        select(table.object, *_ENTRY).where(table.scope == scope, one_of(connection.dialect, table.object, names))
    )
    entries: dict[str, list[Entry]] = {}
    for name, *values in rows:
        entries.setdefault(name, []).append(Entry(*values))
    return entries


async def read_times(connection: AsyncConnection, scope: int) -> dict[int, datetime]:
    """Time of each partition, by its own records."""
    table = checkpoints.c
    rows = await connection.execute(
        select(table.partition, table.time).where(table.scope == scope, table.time.is_not(None))
    )
    return dict(rows.all())


async def read_expired(
    connection: AsyncConnection, scope: int, partitions: Collection[int], until: datetime
) -> list[ExpiredEntry]:
    """Entries of objects in the partitions that expire up to a time."""
    rows = await connection.execute(
        select(objects.c.object, objects.c.partition, *_ENTRY)
        .join(objects, and_(objects.c.scope == index_entries.c.scope, objects.c.object == index_entries.c.object))
        .where(
            index_entries.c.scope == scope,
            index_entries.c.expires_at.is_not(None),
            index_entries.c.expires_at <= until,
            one_of_numbers(connection.dialect, objects.c.partition, partitions),
        )
        .order_by(index_entries.c.object, index_entries.c.index, index_entries.c.key, index_entries.c.ordinal)
    )
    found: list[ExpiredEntry] = []
    for row in rows.mappings():
        entry = Entry(**{field: row[field] for field in Entry.__struct_fields__})
        found.append(ExpiredEntry(row["object"], row["partition"], entry))
    return found


async def read_syncs(connection: AsyncConnection, scope: int) -> dict[Input, SyncRow]:
    """Lists begun and completed, for each partition and resource."""
    columns = [syncs.c[name] for name in SyncRow.__struct_fields__]
    rows = await connection.execute(select(*columns).where(syncs.c.scope == scope))
    return {(row["partition"], row["resource"]): SyncRow(**row) for row in rows.mappings()}


async def read_unlisted(
    connection: AsyncConnection,
    scope: int,
    partition: int,
    resource: str,
    *,
    namespaces: Collection[str],
    before: int,
    version: int,
) -> list[StoredObject]:
    """Objects of a partition that a complete list left out: no record since `before`, not newer than `version`.

    The list covered these namespaces, or all if there are none. What is held of others is watched no more.
    """
    is_covered = one_of(connection.dialect, objects.c.namespace, list(namespaces)) if namespaces else true()
    columns = [objects.c[name] for name in StoredObject.__struct_fields__]
    rows = await connection.execute(
        select(*columns).where(
            objects.c.scope == scope,
            objects.c.resource == resource,
            objects.c.partition == partition,
            objects.c.sequence < before,
            or_(objects.c.version <= version, ~is_covered),
        )
    )
    return [StoredObject(**row) for row in rows.mappings()]
