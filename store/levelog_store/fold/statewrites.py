"""Writes what a State has folded and decided to its tables, from which the next process takes it up."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Delete,
    Dialect,
    Update,
    and_,
    bindparam,
    case,
    delete,
    literal,
    or_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.decide.decisions import PendingWake
from levelog_store.dialects import built_once, delete_each, insert_for, row_of, rows_of, upsert, write
from levelog_store.fold.levelwrites import ASKED_FOR
from levelog_store.owners.handlers import Backfill
from levelog_store.rows import (
    Entry,
    IndexKey,
    Input,
    Scope,
    StoredObject,
    SyncRow,
    Tombstone,
    UnreadableRow,
    ViewParent,
)
from levelog_store.tables import (
    backfills,
    dependencies,
    index_entries,
    key_versions,
    objects,
    syncs,
    tombstones,
    unreadable,
    wakeups,
)


class Unwritten(Struct):
    """What the tables have not been told of a State: the newest of each row; None, or False: there is none."""

    objects: dict[str, StoredObject | None] = {}
    """Without a body if the tables have it, and only sequence and version are other ones."""
    tombstones: dict[str, Tombstone | None] = {}
    entries: dict[tuple[str, str, str, int], Entry | None] = {}
    """Entries by index, key, object and ordinal."""
    keys: dict[IndexKey, int] = {}
    syncs: dict[Input, SyncRow] = {}
    unreadable: dict[tuple[int, str], UnreadableRow] = {}

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)

    def __len__(self) -> int:
        return len(self.objects) + len(self.entries)


async def write_state(
    connection: AsyncConnection, scope: Scope, unwritten: Unwritten, done: Collection[Backfill] = ()
) -> None:
    """Write the rows, and forget backfills that are `done`.

    The caller holds the leases of the partitions (`leases.guard`) in the same transaction.
    """
    await delete_each(
        connection, scope, backfills, ("name", "partition"), [(each.name, each.partition) for each in done]
    )
    gone, held = _parted(unwritten.objects)
    await delete_each(connection, scope, objects, ("object",), [(name,) for name in gone])
    shown = [row for row in held.values() if row.body]
    named = zip(rows_of(scope, shown), shown, strict=True)
    await upsert(connection, objects, [{**row, "name": each.name} for row, each in named])
    await _move_objects(connection, scope, [row for row in held.values() if not row.body])
    gone, buried = _parted(unwritten.tombstones)
    await delete_each(connection, scope, tombstones, ("object",), [(name,) for name in gone])
    await upsert(connection, tombstones, rows_of(scope, buried.values()))
    removed, entries = _parted(unwritten.entries)
    await delete_each(connection, scope, index_entries, ("index", "key", "object", "ordinal"), removed)
    rows = [{"scope": scope.number, "object": place[2], **asdict(entry)} for place, entry in entries.items()]
    await upsert(connection, index_entries, rows)
    await upsert(connection, syncs, rows_of(scope, [row for _, row in sorted(unwritten.syncs.items())]))
    await upsert(connection, unreadable, rows_of(scope, [row for _, row in sorted(unwritten.unreadable.items())]))
    await write_keys(connection, scope, unwritten.keys)


async def _move_objects(connection: AsyncConnection, scope: Scope, rows: Sequence[StoredObject]) -> None:
    moved = [{"of_scope": scope.number, "of_object": r.object, "to": r.sequence, "as": r.version} for r in rows]
    await write(connection, _move_object(), moved)


@built_once
def _move_object() -> Update:
    return update(objects).where(row_of(objects, "object")).values(sequence=bindparam("to"), version=bindparam("as"))


def _parted(rows: Mapping[Any, Any]) -> tuple[list[Any], dict[Any, Any]]:
    """Places of rows that are gone, and the others, in one order for everybody."""
    ordered = sorted(rows.items(), key=lambda each: each[0])
    return [place for place, row in ordered if row is None], {p: row for p, row in ordered if row is not None}


async def write_keys(connection: AsyncConnection, scope: Scope, keys: Mapping[IndexKey, int]) -> None:
    """Raise versions of keys. In their order: the owners of other partitions may raise the same ones."""
    rows = [{"scope": scope.number, "index": i, "key": k, "version": keys[i, k]} for i, k in sorted(keys)]
    await write(connection, _raise_keys(connection.dialect), rows)


@built_once
def _raise_keys(dialect: Dialect) -> postgresql.Insert | sqlite.Insert:
    statement = insert_for(dialect, key_versions)
    known, fresh = key_versions.c.version, statement.excluded.version
    keys = list(key_versions.primary_key)
    return statement.on_conflict_do_update(
        index_elements=keys, set_={"version": case((known > fresh, known), else_=fresh)}
    )


async def write_reads(
    connection: AsyncConnection,
    scope: Scope,
    reads: Mapping[tuple[ViewParent, IndexKey], bool],
    partition_of: Mapping[ViewParent, int],
) -> None:
    """Write which keys levels read, or do not any more. The caller holds the leases in the same transaction."""
    ordered = sorted(reads.items())
    removed = [(*level, *place) for (level, place), is_read in ordered if not is_read]
    await delete_each(connection, scope, dependencies, ("view", "parent", "index", "key"), removed)
    rows = [
        {
            "scope": scope.number,
            "view": level[0],
            "parent": level[1],
            "index": place[0],
            "key": place[1],
            "partition": partition_of[level],
        }
        for (level, place), is_read in ordered
        if is_read
    ]
    await upsert(connection, dependencies, rows, update=())


async def write_wakes_of(
    connection: AsyncConnection,
    scope: Scope,
    wakes: Mapping[ViewParent, PendingWake | None],
    seen: Mapping[ViewParent, int],
) -> None:
    """Write what is to be decided on; None: nothing is, any more.

    A row that somebody has written to have a level tried again stays, unless it was `seen`, with this generation.
    """
    done = [level for level, wake in sorted(wakes.items()) if wake is None]
    rows = [{"of_scope": scope.number, "of_view": v, "of_parent": p, "seen": seen.get((v, p), -1)} for v, p in done]
    await write(connection, _delete_wakes(), rows)
    held = [wake for _, wake in sorted(wakes.items()) if wake is not None]
    rows = [{**row, "seen": seen.get((row["view"], row["parent"]), -1)} for row in rows_of(scope, held)]
    await write(connection, _put_wakes(connection.dialect), rows)


def _may_go() -> ColumnElement[bool]:
    table = wakeups.c
    is_seen = table.generation == bindparam("seen", type_=BigInteger)
    return or_(table.due_at.is_(None), table.due_at != literal(ASKED_FOR, table.due_at.type), is_seen)


@built_once
def _delete_wakes() -> Delete:
    return delete(wakeups).where(and_(row_of(wakeups, "view", "parent"), _may_go()))


@built_once
def _put_wakes(dialect: Dialect) -> postgresql.Insert | sqlite.Insert:
    statement = insert_for(dialect, wakeups)
    keys = list(wakeups.primary_key)
    given = [name for name in PendingWake.__struct_fields__ if name not in wakeups.primary_key.columns]
    fresh = statement.excluded
    statement = statement.values({name: bindparam(name) for name in ("scope", *PendingWake.__struct_fields__)})
    return statement.on_conflict_do_update(
        index_elements=keys, set_={name: fresh[name] for name in given}, where=_may_go()
    )
