"""Positions, in each partition, of handlers whose calls leave no records, and the objects whose calls are held."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from sqlalchemy import BigInteger, Dialect, Select, Update, bindparam, func, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.connect.database import Database
from levelog_store.decide.inputreads import read_mirrored
from levelog_store.dialects import (
    built_once,
    change,
    delete_each,
    mappings,
    named,
    now,
    of_pairs,
    one_of,
    one_of_named,
    read_as,
    rows_of,
    run,
    upsert,
)
from levelog_store.rows import Scope
from levelog_store.tables import call_holds, call_positions, objects

Place: TypeAlias = tuple[str, int]
"""Handler and partition."""


class CallHold(Struct, frozen=True, kw_only=True):
    """A row of `call_holds`."""

    handler: str
    object: str
    partition: int
    position: int
    attempts: int
    error: str
    since: datetime
    due_at: datetime


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
    rows = await connection.execute(select(table.handler, table.partition, table.position).where(*are_asked))
    found = {(row.handler, row.partition): row.position for row in rows}
    missing = [place for place in wanted if place not in found]
    if missing:
        mirrored = await read_mirrored(connection, scope)
        begun = {place: mirrored[place[1]] if start is None else start for place in missing}
        await write_positions(connection, scope, begun)
        found |= begun
    return {place: found[place] for place in wanted}


async def write_positions(connection: AsyncConnection, scope: Scope, positions: Mapping[Place, int]) -> None:
    """Store how far handlers are. The caller holds the leases in the same transaction."""
    rows = [
        {"scope": scope.number, "handler": handler, "partition": partition, "position": position}
        for (handler, partition), position in sorted(positions.items())
    ]
    await upsert(connection, call_positions, rows)


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


async def read_holds(
    connection: AsyncConnection, scope: Scope, partitions: Collection[int] | None = None
) -> list[CallHold]:
    """What waits, in some partitions or all, by handler and object."""
    table = call_holds.c
    are_asked = true() if partitions is None else one_of(connection.dialect, table.partition, partitions)
    return await read_as(CallHold, connection, scope, call_holds, are_asked, order=(table.handler, table.object))


async def lock_due_times(
    connection: AsyncConnection, scope: Scope, names: Collection[tuple[str, str]]
) -> dict[tuple[str, str], datetime]:
    """When objects that wait are tried again, by handler and object; nobody changes that in this transaction's time."""
    rows = await run(connection, scope, _due_times, pairs=sorted(names)) if names else ()
    return {(handler, name): due_at for handler, name, due_at in rows}


@built_once
def _due_times(dialect: Dialect) -> Select[Any]:
    table = call_holds.c
    place = table.handler, table.object
    return of_pairs(dialect, *place, table.due_at).order_by(*place).with_for_update(of=call_holds)


async def write_holds(connection: AsyncConnection, scope: Scope, holds: Sequence[CallHold]) -> None:
    """Store what waits. The caller holds the leases in the same transaction."""
    in_order = sorted(holds, key=lambda each: (each.handler, each.object))
    await upsert(connection, call_holds, rows_of(scope, in_order))


async def retry_holds(database: Database, scope: Scope, names: Collection[tuple[str, str]]) -> None:
    """Make held records due at once, by handler and object.

    Any process may do this, beside those of the application: they look for it. Each is a transaction, since a processor
    locks those that it changes before those that it deletes.
    """
    table = call_holds.c
    for handler, name in sorted(names):
        async with database.transaction() as connection:
            is_it = table.handler == handler, table.object == name, table.error != ""
            await change(connection, scope, call_holds, *is_it, due_at=now(connection.dialect))


async def release_holds(connection: AsyncConnection, scope: Scope, names: Collection[tuple[str, str]]) -> None:
    """Delete finished holds, by handler and object. The caller holds the leases in the same transaction."""
    await delete_each(connection, scope, call_holds, ("handler", "object"), sorted(names))
