"""What decisions read: wakeups, parents, levels, buckets of indices, intents and their targets."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.clauses import among, one_of, one_of_numbers, pairs
from levelog_store.database import now
from levelog_store.rows import (
    ERRORS,
    Bucket,
    IndexKey,
    LevelRow,
    OpenIntent,
    PendingWake,
    StoredObject,
    Target,
    ViewParent,
    WholeIndex,
)
from levelog_store.tables import (
    checkpoints,
    dependencies,
    index_entries,
    intents,
    key_versions,
    levels,
    objects,
    tombstones,
    wakeups,
)


async def read_wakes(
    connection: AsyncConnection,
    scope: int,
    partitions: Collection[int],
    views: Collection[str],
    limit: int,
    *,
    at: datetime | None = None,
) -> list[PendingWake]:
    """Wakeups that are due at a time, by default now by the database's clock; oldest cause first."""
    table = wakeups.c
    columns = [table[name] for name in PendingWake.__struct_fields__]
    dialect = connection.dialect
    rows = await connection.execute(
        select(*columns)
        .where(
            table.scope == scope,
            one_of_numbers(dialect, table.partition, partitions),
            one_of(dialect, table.view, views),
            or_(table.due_at.is_(None), table.due_at <= (now(dialect) if at is None else at)),
        )
        .order_by(table.cause, table.view, table.parent)
        .limit(limit)
    )
    return [PendingWake(**row) for row in rows.mappings()]


async def read_generations(connection: AsyncConnection, scope: int, of: Sequence[ViewParent]) -> dict[ViewParent, int]:
    """How often each level was asked for by now; levels without a wakeup are left out."""
    wanted = pairs(connection.dialect, of)
    table = wakeups.c
    rows = await connection.execute(
        select(table.view, table.parent, table.generation)
        .join(wanted, (table.view == wanted.c.first) & (table.parent == wanted.c.second))
        .where(table.scope == scope)
    )
    return {(view, parent): generation for view, parent, generation in rows}


async def read_next_due(
    connection: AsyncConnection, scope: int, partitions: Collection[int]
) -> tuple[datetime, datetime] | None:
    """Time of the first wakeup that waits for it, and the database's time now; None if none waits."""
    table = wakeups.c
    dialect = connection.dialect
    row = (
        await connection.execute(
            select(table.due_at, now(dialect).label("now"))
            .where(
                table.scope == scope,
                one_of_numbers(dialect, table.partition, partitions),
                table.due_at.is_not(None),
            )
            .order_by(table.due_at)
            .limit(1)
        )
    ).first()
    return None if row is None else (row.due_at, row.now)


async def read_parents(connection: AsyncConnection, scope: int, names: Collection[str]) -> dict[str, StoredObject]:
    """Objects by name."""
    columns = [objects.c[name] for name in StoredObject.__struct_fields__]
    rows = await connection.execute(
        select(*columns).where(objects.c.scope == scope, one_of(connection.dialect, objects.c.object, names))
    )
    return {row["object"]: StoredObject(**row) for row in rows.mappings()}


async def read_levels(connection: AsyncConnection, scope: int, parents: Collection[str]) -> dict[ViewParent, LevelRow]:
    """Levels of the parents, of all views."""
    columns = [levels.c[name] for name in LevelRow.__struct_fields__]
    rows = await connection.execute(
        select(*columns).where(levels.c.scope == scope, one_of(connection.dialect, levels.c.parent, parents))
    )
    return {(row["view"], row["parent"]): LevelRow(**row) for row in rows.mappings()}


async def read_dependencies(
    connection: AsyncConnection, scope: int, of: Sequence[ViewParent]
) -> dict[ViewParent, set[IndexKey]]:
    """Keys that each level read when it was evaluated last."""
    table = dependencies.c
    source, is_there = among(connection.dialect, scope, (table.view, table.parent), of)
    rows = await connection.execute(
        select(table.view, table.parent, table.index, table.key).select_from(source).where(is_there)
    )
    found: dict[ViewParent, set[IndexKey]] = {}
    for view, parent, index, key in rows:
        found.setdefault((view, parent), set()).add((index, key))
    return found


async def read_buckets(connection: AsyncConnection, scope: int, keys: Sequence[IndexKey]) -> dict[IndexKey, Bucket]:
    """Values and version of each key, as of one moment; keys that nothing is under are there too."""
    if not keys:
        return {}
    wanted = pairs(connection.dialect, keys)
    entry, version = index_entries.c, key_versions.c
    same_entry = and_(entry.scope == scope, entry.index == wanted.c.first, entry.key == wanted.c.second)
    same_version = and_(version.scope == scope, version.index == wanted.c.first, version.key == wanted.c.second)
    rows = await connection.execute(
        select(wanted.c.first, wanted.c.second, version.version, entry.object, entry.value)
        .select_from(wanted.outerjoin(key_versions, same_version).outerjoin(index_entries, same_entry))
        .order_by(wanted.c.first, wanted.c.second, entry.object, entry.ordinal)
    )
    versions: dict[IndexKey, int] = {}
    values: dict[IndexKey, list[bytes]] = {}
    for index, key, changed, name, value in rows:
        versions[index, key] = -1 if changed is None else changed
        held = values.setdefault((index, key), [])
        if name is not None:
            held.append(value)
    return {place: Bucket(versions[place], tuple(held)) for place, held in values.items()}


async def read_versions(connection: AsyncConnection, scope: int, keys: Sequence[IndexKey]) -> dict[IndexKey, int]:
    """Version of each key that has one."""
    table = key_versions.c
    source, is_there = among(connection.dialect, scope, (table.index, table.key), keys)
    rows = await connection.execute(select(table.index, table.key, table.version).select_from(source).where(is_there))
    return {(index, key): version for index, key, version in rows}


async def read_whole_index(connection: AsyncConnection, scope: int, index: str, whole: Sequence[str]) -> WholeIndex:
    """Every bucket of an index; the versions are read first, so that a change in between is seen as one."""
    parts = await read_buckets(connection, scope, [(index, key) for key in whole])
    table = index_entries.c
    rows = await connection.execute(
        select(table.key, table.value)
        .where(table.scope == scope, table.index == index, table.key != ERRORS)
        .order_by(table.key, table.object, table.ordinal)
    )
    buckets: dict[str, list[bytes]] = {}
    for key, value in rows:
        buckets.setdefault(key, []).append(value)
    return WholeIndex(
        versions={key: bucket.version for (_, key), bucket in parts.items()},
        buckets={key: tuple(values) for key, values in buckets.items()},
    )


async def read_open_intents(
    connection: AsyncConnection, scope: int, of: Sequence[ViewParent]
) -> dict[ViewParent, list[OpenIntent]]:
    """Intents of each level's last round, and older ones that are not settled; no level waits for Events."""
    wanted = pairs(connection.dialect, of)
    table, held = intents.c, objects.c
    computed = ("outcome", "held_uid", "held_version", "held_is_deleting", "held_manager", "buried_version")
    fields = [name for name in OpenIntent.__struct_fields__ if name not in computed]
    rows = await connection.execute(
        select(
            *(table[name] for name in fields),
            table.receipt,
            held.uid.label("held_uid"),
            held.version.label("held_version"),
            held.is_deleting.label("held_is_deleting"),
            func.coalesce(held.manager, "").label("held_manager"),
            tombstones.c.version.label("buried_version"),
        )
        .join(wanted, (table.view == wanted.c.first) & (table.parent == wanted.c.second))
        .join(levels, and_(levels.c.scope == scope, levels.c.view == table.view, levels.c.parent == table.parent))
        .outerjoin(objects, and_(held.scope == scope, held.object == table.target))
        .outerjoin(tombstones, and_(tombstones.c.scope == scope, tombstones.c.object == table.target))
        .where(
            table.scope == scope,
            table.parent_uid == levels.c.parent_uid,
            table.state != "superseded",
            table.verb != "event",
            or_(table.round == levels.c.round, table.state.in_(("pending", "claimed", "written"))),
        )
        .order_by(table.round, table.ordinal)
    )
    found: dict[ViewParent, list[OpenIntent]] = {}
    for row in rows.mappings():
        values = dict(row)
        receipt = values.pop("receipt")
        found.setdefault((row["view"], row["parent"]), []).append(OpenIntent(outcome=_outcome(receipt), **values))
    return found


def _outcome(receipt: bytes | None) -> str:
    if receipt is None:
        return ""
    for outcome in ("written", "unchanged", "gone", "conflict", "failed"):
        if f'"outcome":"{outcome}"'.encode() in receipt:
            return outcome
    return ""


async def read_targets(connection: AsyncConnection, scope: int, names: Collection[str]) -> dict[str, Target]:
    """What is held of the targets of intents."""
    columns = [objects.c[name] for name in ("object", *Target.__struct_fields__)]
    rows = await connection.execute(
        select(*columns).where(objects.c.scope == scope, one_of(connection.dialect, objects.c.object, names))
    )
    return {
        row.object: Target(uid=row.uid, version=row.version, is_deleting=row.is_deleting, body=row.body) for row in rows
    }


async def read_last_applied(connection: AsyncConnection, scope: int, targets: Collection[str]) -> dict[str, bytes]:
    """Body of the newest apply to each target that was not superseded."""
    table = intents.c
    newest_first = (table.decided_at.desc(), table.round.desc(), table.ordinal.desc())
    applied = (
        select(
            table.target,
            table.body,
            func.row_number().over(partition_by=table.target, order_by=newest_first).label("place"),
        )
        .where(
            table.scope == scope,
            one_of(connection.dialect, table.target, targets),
            table.verb == "apply",
            table.state.in_(("claimed", "written", "settled", "satisfied")),
        )
        .subquery()
    )
    rows = await connection.execute(select(applied.c.target, applied.c.body).where(applied.c.place == 1))
    return {row.target: row.body for row in rows}


async def read_checkpoints(connection: AsyncConnection, scope: int) -> dict[int, int]:
    """Sequence up to which each partition is folded."""
    rows = await connection.execute(
        select(checkpoints.c.partition, checkpoints.c.sequence).where(checkpoints.c.scope == scope)
    )
    return dict(rows.all())


async def read_last_record(connection: AsyncConnection, scope: int) -> tuple[int, str]:
    """Sequence and id of the last record that was folded, of any partition; (0, "") if there was none."""
    table = checkpoints.c
    row = (
        await connection.execute(
            select(table.record_sequence, table.record_id)
            .where(table.scope == scope)
            .order_by(table.record_sequence.desc())
            .limit(1)
        )
    ).first()
    return (0, "") if row is None else (row.record_sequence, row.record_id)


async def count_pending(connection: AsyncConnection, scope: int) -> int:
    """Wakeups that are due now."""
    table = wakeups.c
    dialect = connection.dialect
    statement = select(func.count()).where(
        table.scope == scope, or_(table.due_at.is_(None), table.due_at <= now(dialect))
    )
    return (await connection.execute(statement)).scalar_one()
