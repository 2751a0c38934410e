"""What changed code has to recompute from `objects`, and how far each partition is.

Objects are processed in the order of their names. The position commits with the results up to it.
"""

from collections import Counter
from collections.abc import Collection, Mapping

from msgspec import Struct
from sqlalchemy import bindparam, case, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.errors import CommitsLost
from levelog_store.dialects import is_of_resource, one_of, read_as
from levelog_store.owners.handlers import Kind
from levelog_store.rows import Scope, StoredObject
from levelog_store.tables import backfills, objects


class Backfill(Struct, frozen=True, kw_only=True):
    """A row of `backfills` that is not done."""

    name: str
    partition: int
    kind: Kind
    resource: str
    position: str
    objects: int


class Progress(Struct, frozen=True, kw_only=True):
    """How much of a backfill is done, over all partitions."""

    resource: str
    objects: int


async def read_unfinished(connection: AsyncConnection, scope: Scope) -> list[Backfill]:
    """Unfinished backfills, by name and partition."""
    table = backfills.c
    order = table.name, table.partition
    return await read_as(Backfill, connection, scope, backfills, table.is_done.is_(False), order=order)


async def read_progress(connection: AsyncConnection, scope: Scope) -> dict[str, Progress]:
    """How far each index and view is that is not done in all partitions."""
    table = backfills.c
    rows = await connection.execute(
        select(table.name, func.max(table.resource), func.sum(table.objects))
        .where(table.scope == scope.number)
        .group_by(table.name)
        .having(func.sum(case((table.is_done, 1), else_=0)) < func.count())
    )
    return {name: Progress(resource=resource, objects=int(done)) for name, resource, done in rows}


class BackfillPage(Struct, frozen=True):
    """Some objects in the order of their names, and how far they reach."""

    objects: list[StoredObject]
    position: str
    """Name up to which the partitions asked for have no other objects."""
    is_last: bool


async def read_page(
    connection: AsyncConnection, scope: Scope, resource: str, positions: Mapping[int, str], limit: int
) -> BackfillPage:
    """The next objects of a resource in some partitions, by name, each partition beginning after its own position."""
    table = objects.c
    after = min(positions.values())
    are_next = table.object > after, is_of_resource(table.object, resource)
    are_asked = *are_next, one_of(connection.dialect, table.partition, positions)
    found = await read_as(StoredObject, connection, scope, objects, *are_asked, order=(table.object,), limit=limit)
    fresh = [row for row in found if row.object > positions[row.partition]]
    return BackfillPage(fresh, position=found[-1].object if found else after, is_last=len(found) < limit)


async def write_progress(
    connection: AsyncConnection, scope: Scope, name: str, positions: Mapping[int, str], page: BackfillPage
) -> None:
    """Store that the objects of a page are done, in its partitions.

    The caller holds the leases of the partitions (`leases.guard`) in the same transaction. Raises CommitsLost if the
    tables are not at the positions after which the page begins.
    """
    table = backfills.c
    are_asked = table.scope == scope.number, table.name == name, one_of(connection.dialect, table.partition, positions)
    found = await connection.execute(select(table.partition, table.position).where(*are_asked))
    if dict(found.all()) != positions:
        raise CommitsLost(f"{name} was computed anew further than the database knows: it lost commits")
    statement = (
        update(backfills)
        .where(table.scope == scope.number, table.name == name, table.partition == bindparam("of"))
        .values(position=bindparam("to"), objects=table.objects + bindparam("more"), is_done=page.is_last)
    )
    done = Counter(row.partition for row in page.objects)
    rows = [
        {"of": partition, "to": max(position, page.position), "more": done[partition]}
        for partition, position in sorted(positions.items())
    ]
    await connection.execute(statement, rows)


async def count_objects(connection: AsyncConnection, scope: Scope, resources: Collection[str]) -> dict[str, int]:
    """How many objects there are of each resource."""
    found = dict.fromkeys(resources, 0)
    for resource in found:
        are_asked = objects.c.scope == scope.number, objects.c.resource == resource
        found[resource] = int(await connection.scalar(select(func.count()).where(*are_asked)) or 0)
    return found
