"""Reads the tables whole, for a State that begins where they end."""

from collections.abc import AsyncGenerator, Collection, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import ColumnElement, Dialect, Select, Table, case, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.actuate.claims import is_unsettled
from levelog_store.decide.decisions import OpenIntent, PendingWake
from levelog_store.dialects import PAGED, built_once, fields, mappings, named, now, one_of, read_as, run
from levelog_store.fold.checkpoints import Point, read_points
from levelog_store.owners.handlers import Backfill
from levelog_store.rows import Entry, IndexKey, Input, LevelRow, Scope, StoredObject, SyncRow, Tombstone, UnreadableRow
from levelog_store.tables import (
    backfills,
    dependencies,
    index_entries,
    intents,
    key_versions,
    levels,
    objects,
    syncs,
    tombstones,
    unreadable,
    wakeups,
)


class AwaitedWrite(OpenIntent, frozen=True, kw_only=True):
    """A write that is not settled."""

    partition: int
    """Of the level that waits for it."""


class StoredState(Struct, frozen=True, kw_only=True):
    """All that the tables of a scope hold of what a State does, as of one commit."""

    moment: datetime
    """The database's time."""
    folded_to: dict[int, int]
    """Up to which record levels and intents are of each partition."""
    mirrored: dict[int, int]
    """Up to which objects, entries and lists are: that, or less."""
    commits: dict[int, int]
    times: dict[int, datetime]
    newest: tuple[int, str]
    """Sequence and id of the newest record that was folded, of any partition; (0, ""): there was none."""
    objects: Sequence[StoredObject]
    tombstones: Sequence[Tombstone]
    unreadable: Sequence[UnreadableRow]
    syncs: Sequence[SyncRow]
    entries: Sequence[tuple[str, Entry]]
    """With the objects that gave them."""
    keys: dict[IndexKey, int]
    levels: Sequence[LevelRow]
    reads: Sequence[tuple[str, str, str, str]]
    """View, parent, index and key."""
    wakes: Sequence[PendingWake]
    awaited: Sequence[AwaitedWrite]
    unfinished: Sequence[Backfill]
    """What changed code has to compute anew."""


async def read_state(connection: AsyncConnection, scope: Scope, bodies_of: Collection[str] | None) -> StoredState:
    """Read all of it, in one snapshot; of bodies only those of objects of these resources, None: all."""
    at = select(now(connection.dialect))
    points = await read_points(connection, scope)
    newest = max(points, key=lambda point: point.record_sequence)
    entry, version, read, intent = index_entries.c, key_versions.c, dependencies.c, intents.c
    entries = select(entry.object, *fields(Entry, index_entries)).where(entry.scope == scope.number)
    keys = select(version.index, version.key, version.version).where(version.scope == scope.number)
    reads = select(read.view, read.parent, read.index, read.key).where(read.scope == scope.number)
    are_awaited = is_unsettled(intents), intent.verb != "event"
    body: ColumnElement[Any] = objects.c.body
    if bodies_of is not None:
        body = case((one_of(connection.dialect, objects.c.resource, bodies_of), body))
    many = _Rows(connection, scope)
    return StoredState(
        moment=(await connection.execute(at)).scalar_one(),
        folded_to={point.partition: point.sequence for point in points},
        mirrored={point.partition: point.mirrored for point in points},
        commits={point.partition: point.commits for point in points},
        times={point.partition: point.time for point in points if point.time is not None},
        newest=(newest.record_sequence, newest.record_id),
        objects=[_object(row) async for row in many.mapped(StoredObject, objects, body=body)],
        tombstones=[Tombstone(**row) async for row in many.mapped(Tombstone, tombstones)],
        unreadable=await read_as(UnreadableRow, connection, scope, unreadable),
        syncs=await read_as(SyncRow, connection, scope, syncs),
        entries=[(name, Entry(*values)) async for name, *values in many.of(entries)],
        keys={(index, key): number async for index, key, number in many.of(keys)},
        levels=[LevelRow(**row) async for row in many.mapped(LevelRow, levels, levels.c.position.is_(None))],
        reads=[(view, parent, index, key) async for view, parent, index, key in many.of(reads)],
        wakes=[PendingWake(**row) async for row in many.mapped(PendingWake, wakeups)],
        awaited=await read_as(AwaitedWrite, connection, scope, intents, *are_awaited),
        unfinished=await read_as(Backfill, connection, scope, backfills),
    )


def _object(row: dict[str, Any]) -> StoredObject:
    row["body"] = row["body"] or b""
    return StoredObject(**row)


_SHARED: Final = frozenset({str, int, datetime})
"""Types of values that become one object where they are equal, since a State keeps them; true is not 1."""


class _Rows:
    """Reads rows of a scope a page at a time."""

    def __init__(self, connection: AsyncConnection, scope: Scope) -> None:
        self._connection = connection
        self._scope = scope
        self._known: dict[Any, Any] = {}

    async def of(self, query: Select[*tuple[Any, ...]]) -> AsyncGenerator[list[Any]]:
        """The rows of a query."""
        share = self._known.setdefault
        async with self._connection.stream(query, execution_options=PAGED) as found:
            async for page in found.partitions():
                for row in page:
                    yield [share(each, each) if type(each) in _SHARED else each for each in row]

    async def mapped(
        self, kind: type[Struct], table: Table, *conditions: ColumnElement[bool], **others: ColumnElement[Any]
    ) -> AsyncGenerator[dict[str, Any]]:
        """The rows of a table that meet the conditions, by the fields of a struct: columns, or the `others`."""
        names = kind.__struct_fields__
        columns = (others.get(name, table.c[name]) for name in names)
        async for row in self.of(select(*columns).where(table.c.scope == self._scope.number, *conditions)):
            yield dict(zip(names, row, strict=True))


async def read_syncs(connection: AsyncConnection, scope: Scope) -> dict[Input, SyncRow]:
    """Lists begun and completed, for each partition and resource."""
    return {(row.partition, row.resource): row for row in await read_as(SyncRow, connection, scope, syncs)}


class Requested(Struct, frozen=True, kw_only=True):
    """What other processes ask for, and the database's time."""

    moment: datetime
    wakes: Sequence[PendingWake]
    """Wakes whose time has come."""
    points: Sequence[Point]
    """How far each partition is."""


async def read_requested(connection: AsyncConnection, scope: Scope, partitions: Sequence[int]) -> Requested:
    """Wakeups of some partitions that wait for a time that has come, and how far each partition is."""
    rows = mappings(await run(connection, scope, _requested, partitions=partitions))
    names = PendingWake.__struct_fields__
    wakes = [PendingWake(**{name: row[name] for name in names}) for row in rows if row["view"] is not None]
    return Requested(moment=rows[0]["moment"], wakes=wakes, points=await read_points(connection, scope))


@built_once
def _requested(dialect: Dialect) -> Select[Any, Any]:
    table = wakeups.c
    clock = select(now(dialect).label("moment")).cte("clock")
    moment = select(clock.c.moment).scalar_subquery()
    due = select(*fields(PendingWake, wakeups)).where(
        named(dialect, table.partition, "partitions"), table.due_at <= moment
    )
    found = due.subquery("found")
    return select(found, clock.c.moment).select_from(clock.outerjoin(found, true()))
