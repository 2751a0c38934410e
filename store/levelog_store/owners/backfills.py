"""What changed code has to recompute from `objects`, and in which partitions that is done."""

from collections.abc import Sequence

from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.dialects import change, read_as
from levelog_store.owners.handlers import Kind
from levelog_store.rows import Scope
from levelog_store.tables import backfills


class Backfill(Struct, frozen=True, kw_only=True):
    """An index, or a view, to compute anew from the objects of one partition."""

    name: str
    partition: int
    kind: Kind
    resource: str


async def read_unfinished(connection: AsyncConnection, scope: Scope) -> list[Backfill]:
    """Unfinished backfills, by name and partition."""
    table = backfills.c
    order = table.name, table.partition
    return await read_as(Backfill, connection, scope, backfills, table.is_done.is_(False), order=order)


async def write_done(connection: AsyncConnection, scope: Scope, done: Sequence[tuple[str, int]]) -> None:
    """Store that backfills are done, by name and partition.

    The caller holds the leases of the partitions (`leases.guard`) in the same transaction.
    """
    table = backfills.c
    for name, partition in done:
        await change(connection, scope, backfills, table.name == name, table.partition == partition, is_done=True)
