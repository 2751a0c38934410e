"""How far partitions are folded, and the commits that were made for them."""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Dialect, Select, Update, bindparam, case, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.dialects import OF_SCOPE, built_once, change, fields, mappings, one_of, row_of, run, write
from levelog_store.fold.changes import Checkpoint
from levelog_store.rows import Scope
from levelog_store.tables import checkpoints


class Point(Checkpoint, frozen=True, kw_only=True):
    """A row of `checkpoints`; see the table for what each column means."""

    partition: int
    mirrored: int
    commits: int


async def read_points(connection: AsyncConnection, scope: Scope) -> list[Point]:
    """How far each partition is."""
    return [Point(**row) for row in mappings(await run(connection, scope, _points))]


@built_once
def _points(_: Dialect) -> Select[Any]:
    return select(*fields(Point, checkpoints)).where(checkpoints.c.scope == OF_SCOPE)


async def write_checkpoints(connection: AsyncConnection, scope: Scope, points: Mapping[int, Checkpoint]) -> None:
    """Move the checkpoints of partitions."""
    rows = [
        {
            "of_scope": scope.number,
            "of": partition,
            "to": point.sequence,
            "at": point.record_sequence,
            "id": point.record_id,
            "newest": point.time,
        }
        for partition, point in sorted(points.items())
    ]
    await write(connection, _move_checkpoints(), rows)


@built_once
def _move_checkpoints() -> Update:
    table = checkpoints.c
    newest = bindparam("newest", type_=table.time.type)
    return (
        update(checkpoints)
        .where(table.scope == OF_SCOPE, table.partition == bindparam("of"))
        .values(
            sequence=bindparam("to"),
            record_sequence=bindparam("at"),
            record_id=bindparam("id"),
            commits=table.commits + 1,
            time=case((table.time > newest, table.time), else_=func.coalesce(newest, table.time)),
        )
    )


async def count_commit(connection: AsyncConnection, scope: Scope, partition: int) -> None:
    """Count a commit that moves no checkpoint, so that its loss is noticed."""
    await run(connection, scope, _count_commit, of_partition=partition)


@built_once
def _count_commit(_: Dialect) -> Update:
    table = checkpoints.c
    return update(checkpoints).where(row_of(checkpoints, "partition")).values(commits=table.commits + 1)


async def note_mirrored(connection: AsyncConnection, scope: Scope, mirrored: Mapping[int, int]) -> None:
    """Note up to which record of each partition objects, entries and lists are written."""
    rows = [{"of_scope": scope.number, "of_partition": each, "to": to} for each, to in sorted(mirrored.items())]
    await write(connection, _note_mirrored(), rows)


@built_once
def _note_mirrored() -> Update:
    return update(checkpoints).where(row_of(checkpoints, "partition")).values(mirrored=bindparam("to"))


async def advance_checkpoints(
    connection: AsyncConnection, scope: Scope, partitions: Collection[int], sequence: int
) -> None:
    """Note that the partitions hold no record up to `sequence` that is not folded."""
    is_behind = one_of(connection.dialect, checkpoints.c.partition, partitions), checkpoints.c.sequence < sequence
    await change(connection, scope, checkpoints, *is_behind, sequence=sequence, mirrored=sequence)
