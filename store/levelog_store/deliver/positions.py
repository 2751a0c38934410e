"""How far handlers are whose calls leave no records: a position in each partition, and in `levels` the held objects."""

from collections.abc import Collection
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from sqlalchemy import BigInteger, Dialect, Select, Update, bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.dialects import (
    built_once,
    delete_each,
    mappings,
    named,
    one_of,
    one_of_named,
    read_as,
    rows_of,
    run,
    upsert,
)
from levelog_store.fold.checkpoints import read_points
from levelog_store.rows import LevelRow, Scope, ViewParent
from levelog_store.tables import call_positions, levels, objects

Place: TypeAlias = tuple[str, int]
"""Handler and partition."""


async def begin_positions(
    connection: AsyncConnection,
    scope: Scope,
    handlers: Collection[str],
    partitions: Collection[int],
    *,
    start: int | None,
) -> dict[Place, int]:
    """How far the handlers are in some partitions; new ones begin after `start`, or where the tables are.

    The caller holds the leases (`leases.guard`) in the same transaction.
    """
    wanted = [(handler, partition) for handler in sorted(handlers) for partition in sorted(partitions)]
    table = call_positions.c
    are_asked = table.scope == scope.number, one_of(connection.dialect, table.partition, partitions)
    known = await connection.execute(select(table.handler, table.partition, table.position).where(*are_asked))
    found = {(row.handler, row.partition): row.position for row in known}
    missing = [place for place in wanted if place not in found]
    if missing:
        mirrored = {point.partition: point.mirrored for point in await read_points(connection, scope)}
        begun = {place: mirrored[place[1]] if start is None else start for place in missing}
        rows = [{"handler": name, "partition": n, "position": position} for (name, n), position in begun.items()]
        await upsert(connection, call_positions, [row | {"scope": scope.number} for row in rows])
        found |= begun
    return {place: found[place] for place in wanted}


async def move_positions(
    connection: AsyncConnection, scope: Scope, handlers: Collection[str], partitions: Collection[int], to: int
) -> None:
    """Store that all of some handlers are as far in all of these partitions, but for those that are further.

    The caller holds the leases in the same transaction.
    """
    await run(connection, scope, _moving, handlers=handlers, partitions=partitions, to=to)


@built_once
def _moving(dialect: Dialect) -> Update:
    table, to = call_positions.c, bindparam("to", type_=BigInteger)
    are_meant = named(dialect, table.handler, "handlers"), one_of_named(dialect, table.partition, "partitions")
    return update(call_positions).where(*are_meant, table.position < to).values(position=to)


class Existing(Struct, frozen=True, kw_only=True):
    """An object, and when it was created."""

    object: str
    resource: str
    partition: int
    uid: str
    created_at: datetime | None
    """None where the API does not say."""


async def read_existing(
    connection: AsyncConnection, scope: Scope, resources: Collection[str], partitions: Collection[int]
) -> list[Existing]:
    """All objects of some resources in some partitions."""
    rows = mappings(await run(connection, scope, _existing, resources=resources, partitions=partitions))
    return [Existing(**row | {"created_at": msgspec.convert(row["created_at"], datetime | None)}) for row in rows]


@built_once
def _existing(dialect: Dialect) -> Select[Any]:
    table = objects.c
    if dialect.name == "postgresql":
        created = func.json_extract_path_text(table.body, "metadata", "creationTimestamp")
    else:
        created = func.json_extract(table.body, "$.metadata.creationTimestamp")
    columns = (table[name] for name in ("object", "resource", "partition", "uid"))
    return select(*columns, created.label("created_at")).where(
        named(dialect, table.resource, "resources"),
        one_of_named(dialect, table.partition, "partitions"),
        ~table.is_deleting,
    )


async def read_held(
    connection: AsyncConnection, scope: Scope, handlers: Collection[str], partitions: Collection[int]
) -> list[LevelRow]:
    """The objects that handlers hold in some partitions."""
    table, dialect = levels.c, connection.dialect
    are_held = one_of(dialect, table.view, handlers), one_of(dialect, table.partition, partitions)
    return await read_as(LevelRow, connection, scope, levels, *are_held)


async def write_held(
    connection: AsyncConnection, scope: Scope, held: Collection[LevelRow], *, released: Collection[ViewParent] = ()
) -> None:
    """Store which objects are held, and which are no more. The caller holds the leases in the same transaction."""
    await upsert(connection, levels, rows_of(scope, sorted(held, key=attrgetter("view", "parent"))))
    await delete_each(connection, scope, levels, ("view", "parent"), sorted(released))
