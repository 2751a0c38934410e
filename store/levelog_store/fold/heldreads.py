"""Reads for a fold: the rows of the objects in its batch."""

from collections.abc import Awaitable, Callable, Collection, Iterator
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias

from sqlalchemy import Dialect, Select, Table, and_, or_, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.actuate.claims import is_unsettled
from levelog_store.dialects import built_once, fields, named, of_pairs, one_of, read_as, run
from levelog_store.fold.changes import ExpiredEntry, Held, HeldLevel, HeldObject, Unlisted
from levelog_store.rows import Entry, Input, Scope, SyncRow, ViewParent
from levelog_store.tables import checkpoints, index_entries, intents, levels, objects, syncs, tombstones
from levelog_store.unions import Rows, read_rows

ReadRows: TypeAlias = Callable[..., Awaitable[Iterator[Rows]]]

_ENTRY = fields(Entry, index_entries)


async def read_held(
    connection: AsyncConnection,
    scope: Scope,
    names: Collection[str],
    *,
    indexed: Collection[str],
    has_parents: bool,
    targets: Collection[str] = (),
    read: ReadRows | None = None,
) -> Held:
    """What the tables hold of the named objects: entries of those that are `indexed`, levels if some have any.

    With the intents under way for the `targets`. `read` is `read_rows` for these, by default, or what reads more.
    """
    read = read or partial(read_rows, connection, scope)
    objects_, tombstones_, levels_, entries, unsettled = await read(
        (_objects, {"names": names}) if names else None,
        (_tombstones, {"names": names}) if names else None,
        (_levels, {"names": names}) if names and has_parents else None,
        (_entries, {"indexed": indexed}) if indexed else None,
        (unsettled_of, {"targets": targets}) if targets else None,
    )
    return Held(
        objects={row["object"]: HeldObject(row["uid"], row["version"]) for row in objects_},
        tombstones={row["object"]: HeldObject(row["uid"], row["version"]) for row in tombstones_},
        levels={(row.pop("view"), row.pop("parent")): HeldLevel(**row) for row in levels_},
        entries=_by_object(entries),
        unsettled=unsettled,
    )


def _by_object(rows: Rows) -> dict[str, list[Entry]]:
    entries: dict[str, list[Entry]] = {}
    for row in rows:
        entries.setdefault(row.pop("object"), []).append(Entry(**row))
    return entries


async def read_rounds(
    connection: AsyncConnection, scope: Scope, of: Collection[ViewParent]
) -> dict[ViewParent, tuple[str, int]]:
    """Uid of the parent, and round, of levels."""
    table = levels.c
    columns = table.view, table.parent, table.parent_uid, table.round
    rows = await run(connection, scope, of_pairs, *columns, pairs=sorted(of))
    return {(view, parent): (uid, round_) for view, parent, uid, round_ in rows}


@built_once
def _versions(dialect: Dialect, table: Table) -> Select[str, str, int]:
    return select(table.c.object, table.c.uid, table.c.version).where(named(dialect, table.c.object, "names"))


_objects: Final = partial(_versions, table=objects)
_tombstones: Final = partial(_versions, table=tombstones)


@built_once
def _levels(dialect: Dialect) -> Select[Any]:
    columns = levels.c.view, levels.c.parent, *fields(HeldLevel, levels)
    return select(*columns).where(named(dialect, levels.c.parent, "names"))


@built_once
def _entries(dialect: Dialect) -> Select[Any]:
    return select(index_entries.c.object, *_ENTRY).where(named(dialect, index_entries.c.object, "indexed"))


@built_once
def unsettled_of(dialect: Dialect) -> Select[str, str, int, str, bool, bool]:
    """Intents under way for the parameter `targets`."""
    table = intents.c
    is_under_way = (table.state != "pending") & (table.owner != "") & ~table.is_folded  # its receipt is to come
    kinds = is_under_way.label("is_under_way"), (table.state == "pending").label("is_pending")
    return select(table.view, table.parent, table.partition, table.target, *kinds).where(
        named(dialect, table.target, "targets"), is_unsettled(intents)
    )


async def read_times(connection: AsyncConnection, scope: Scope) -> dict[int, datetime]:
    """Time of each partition, by its own records."""
    table = checkpoints.c
    query = select(table.partition, table.time).where(table.scope == scope.number, table.time.is_not(None))
    return dict((await connection.execute(query)).all())


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
    return {(row.partition, row.resource): row for row in await read_as(SyncRow, connection, scope, syncs)}


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
    table = objects.c
    is_covered = one_of(connection.dialect, table.namespace, list(namespaces)) if namespaces else true()
    is_left_out = table.sequence < before, or_(table.version <= version, ~is_covered)
    are_asked = table.resource == resource, table.partition == partition
    return await read_as(Unlisted, connection, scope, objects, *are_asked, *is_left_out)
