"""Positions of record handlers in each partition, and the objects that are held back."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import delete, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.decide.inputreads import read_checkpoints
from levelog_store.dialects import now, one_of, row_of, upsert
from levelog_store.rows import Scope
from levelog_store.tables import event_holds, event_positions

Place: TypeAlias = tuple[str, int]
"""Handler and partition."""


class EventHold(Struct, frozen=True, kw_only=True):
    """A row of `event_holds`."""

    handler: str
    object: str
    partition: int
    sequence: int
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
    found = await _read_positions(connection, scope, partitions)
    missing = [place for place in wanted if place not in found]
    if missing:
        folded = await read_checkpoints(connection, scope)
        begun = {place: folded[place[1]] if start is None else start for place in missing}
        await write_positions(connection, scope, begun)
        found |= begun
    return {place: found[place] for place in wanted}


async def _read_positions(connection: AsyncConnection, scope: Scope, partitions: Collection[int]) -> dict[Place, int]:
    table = event_positions.c
    rows = await connection.execute(
        select(table.handler, table.partition, table.sequence).where(
            table.scope == scope.number, one_of(connection.dialect, table.partition, partitions)
        )
    )
    return {(row.handler, row.partition): row.sequence for row in rows}


async def write_positions(connection: AsyncConnection, scope: Scope, positions: Mapping[Place, int]) -> None:
    """Store how far handlers are. The caller holds the leases in the same transaction."""
    rows = [
        {"scope": scope.number, "handler": handler, "partition": partition, "sequence": sequence}
        for (handler, partition), sequence in sorted(positions.items())
    ]
    if rows:
        await upsert(connection, event_positions, rows)


async def read_holds(
    connection: AsyncConnection, scope: Scope, partitions: Collection[int] | None = None
) -> list[EventHold]:
    """What waits, in some partitions or all, by handler and object."""
    table = event_holds.c
    query = select(*(table[name] for name in EventHold.__struct_fields__)).where(table.scope == scope.number)
    if partitions is not None:
        query = query.where(one_of(connection.dialect, table.partition, partitions))
    rows = await connection.execute(query.order_by(table.handler, table.object))
    return [EventHold(**row) for row in rows.mappings()]


async def lock_due_times(
    connection: AsyncConnection, scope: Scope, names: Collection[tuple[str, str]]
) -> dict[tuple[str, str], datetime]:
    """When objects that wait are tried again, by handler and object; nobody changes that in this transaction's time."""
    if not names:
        return {}
    table = event_holds.c
    rows = await connection.execute(
        select(table.handler, table.object, table.due_at)
        .where(table.scope == scope.number, tuple_(table.handler, table.object).in_(list(names)))
        .order_by(table.handler, table.object)
        .with_for_update()
    )
    return {(row.handler, row.object): row.due_at for row in rows}


async def write_holds(connection: AsyncConnection, scope: Scope, holds: Sequence[EventHold]) -> None:
    """Store what waits. The caller holds the leases in the same transaction."""
    rows = [{"scope": scope.number, **asdict(each)} for each in sorted(holds, key=lambda e: (e.handler, e.object))]
    if rows:
        await upsert(connection, event_holds, rows)


async def retry_holds(connection: AsyncConnection, scope: Scope, names: Collection[tuple[str, str]]) -> None:
    """Make held records due at once, by handler and object.

    Any process may commit this, beside those of the application: they look for it.
    """
    table = event_holds.c
    if names:
        await connection.execute(
            update(event_holds)
            .where(row_of(event_holds, "handler", "object"), table.error != "")
            .values(due_at=now(connection.dialect)),
            [{"of_scope": scope.number, "of_handler": handler, "of_object": name} for handler, name in sorted(names)],
        )


async def release_holds(connection: AsyncConnection, scope: Scope, names: Collection[tuple[str, str]]) -> None:
    """Delete finished holds, by handler and object. The caller holds the leases in the same transaction."""
    table = event_holds.c
    if names:
        await connection.execute(
            delete(event_holds).where(table.scope == scope.number, tuple_(table.handler, table.object).in_(list(names)))
        )
