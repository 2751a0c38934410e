"""Writes the changes of a fold, in one transaction with the checkpoint, and finds the levels to wake."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace
from sqlalchemy import Dialect, Row, Select, Update, bindparam, case, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.dialects import (
    OF_SCOPE,
    built_once,
    change,
    delete_each,
    is_of_resource,
    of_pairs,
    one_of,
    remove,
    row_of,
    rows_of,
    run,
    upsert,
    write,
)
from levelog_store.fold.calls import forget_calls
from levelog_store.fold.changes import Changes, Checkpoint, Held, Replaced, Wake, merge_wake
from levelog_store.fold.deletions import keep_deleted
from levelog_store.fold.heldreads import unsettled_of
from levelog_store.fold.levelwrites import (
    forget_levels,
    forget_orphans,
    lock_wakes,
    new_generation,
    write_receipts,
    write_sightings,
    write_wakes,
)
from levelog_store.owners.promotion import NOTHING_KNOWN
from levelog_store.rows import IndexKey, Scope, ViewParent
from levelog_store.tables import (
    checkpoints,
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
from levelog_store.unions import read_rows


async def write_changes(
    connection: AsyncConnection, scope: Scope, changes: Changes, *, within: Held | None = None
) -> dict[ViewParent, Wake]:
    """Write what a fold changes and return every wake that it leads to.

    `within` a transaction that decides, too, these are left to the caller, who writes them, or decides on them, before
    it commits; it has read what is held, with all intents under way for it. The caller holds the leases of the
    partitions (`leases.guard`) in the same transaction.
    """
    await write_checkpoints(connection, scope, changes.checkpoints)
    if changes.deletions:
        await keep_deleted(connection, scope, changes.deletions)
    await _write_objects(connection, scope, changes)
    await _write_entries(connection, scope, changes)
    if changes.calls_forgotten:
        await forget_calls(connection, scope, changes.calls_forgotten, but=changes.calls_kept)
    await upsert(connection, syncs, rows_of(scope, [row for _, row in sorted(changes.syncs.items())]))
    for each in changes.replaced:
        await _await_list(connection, scope, each)
    await upsert(connection, unreadable, rows_of(scope, [row for _, row in sorted(changes.unreadable.items())]))
    await write_key_versions(connection, scope, changes.keys)
    gone = set(changes.gone)
    if gone:
        await forget_levels(connection, scope, gone)
    for partition, views in changes.listed:
        gone |= await forget_orphans(connection, scope, partition, views)
    wakes = await _find_wakes(connection, scope, changes, within)
    if changes.receipts:
        await write_receipts(connection, scope, changes.receipts, gone=changes.gone)
    if changes.sightings:
        await write_sightings(connection, scope, changes.sightings)
    if within is None and gone and wakes:
        await lock_wakes(connection, scope, {*gone, *wakes})
    await delete_each(connection, scope, wakeups, ("view", "parent"), sorted(gone))
    if within is None:
        await write_wakes(connection, scope, wakes)
    return wakes


async def _find_wakes(
    connection: AsyncConnection, scope: Scope, changes: Changes, held: Held | None
) -> dict[ViewParent, Wake]:
    wakes = dict(changes.wakes)
    for each in changes.replaced:
        await _block_readers(connection, scope, each, wakes)
    if changes.keys:  # looked up after the versions were raised, in a statement of its own: no wake is lost
        causes = {place: tuple(changes.changed_by.get(place, (version,))) for place, version in changes.keys.items()}
        for view, parent, partition, index, key in await read_dependants(connection, scope, sorted(changes.keys)):
            merge_wake(wakes, (view, parent), Wake(partition, causes[index, key]))
    touched, ended = changes.touched(), {str(receipt.record.target) for receipt in changes.receipts}
    if held is not None:
        # what waits for levels that are gone was superseded with them, since it was read
        left = [r for r in held.unsettled if not r["is_pending"] or (r["view"], r["parent"]) not in changes.gone]
        changes.frees_targets = _wake_unsettled(left, touched, ended, wakes)
    elif touched or ended:
        (unsettled,) = await read_rows(connection, scope, (unsettled_of, {"targets": {*touched, *ended}}))
        changes.frees_targets = _wake_unsettled(unsettled, touched, ended, wakes)
    return wakes


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
            time=case((table.time > newest, table.time), else_=func.coalesce(newest, table.time)),
        )
    )


async def advance_checkpoints(
    connection: AsyncConnection, scope: Scope, partitions: Collection[int], sequence: int
) -> None:
    """Note that the partitions hold no record up to `sequence` that is not folded."""
    is_behind = one_of(connection.dialect, checkpoints.c.partition, partitions), checkpoints.c.sequence < sequence
    await change(connection, scope, checkpoints, *is_behind, sequence=sequence)


async def _write_objects(connection: AsyncConnection, scope: Scope, changes: Changes) -> None:
    await upsert(connection, objects, rows_of(scope, changes.objects.values()))
    seen = sorted(changes.seen_again.items())
    rows = [{"of_scope": scope.number, "of_object": name, "at": sequence} for name, sequence in seen]
    await write(connection, _see_again(), rows)
    lifted = [(name,) for name in sorted(changes.tombstones_lifted)]
    await delete_each(connection, scope, tombstones, ("object",), lifted)
    await delete_each(connection, scope, objects, ("object",), [(name,) for name in changes.tombstones])
    await upsert(connection, tombstones, rows_of(scope, changes.tombstones.values()))


@built_once
def _see_again() -> Update:
    return update(objects).where(row_of(objects, "object")).values(sequence=bindparam("at"))


async def _write_entries(connection: AsyncConnection, scope: Scope, changes: Changes) -> None:
    place = ("index", "key", "object", "ordinal")
    await delete_each(connection, scope, index_entries, place, changes.entries_removed)
    rows = [{"scope": scope.number, "object": name, **asdict(entry)} for name, entry in changes.entries_written]
    await upsert(connection, index_entries, rows)


async def _await_list(connection: AsyncConnection, scope: Scope, each: Replaced) -> None:
    """Let what is told next of a resource be newer than what is held of it, and what it does not tell be swept.

    Of another history that is whatever comes, and nothing waits for the log to show what was written to the older one.
    """
    held, gone, asked = objects.c, tombstones.c, intents.c
    are_held = held.resource == each.resource, held.partition == each.partition
    version = 0 if each.is_other_history else held.version - 1
    await change(connection, scope, objects, *are_held, version=version)
    if not each.is_other_history:
        return
    are_gone = gone.partition == each.partition, is_of_resource(gone.object, each.resource)
    await remove(connection, scope, tombstones, *are_gone)
    are_targets = asked.partition == each.partition, is_of_resource(asked.target, each.resource)
    await change(connection, scope, intents, asked.state == "written", *are_targets, state="settled")


async def _block_readers(
    connection: AsyncConnection, scope: Scope, each: Replaced, wakes: dict[ViewParent, Wake]
) -> None:
    """Block the levels of the views that read a resource, and wake them once it is listed."""
    table = levels.c
    are_readers = table.partition == each.partition, one_of(connection.dialect, table.view, each.views)
    readers = select(table.view, table.parent).where(table.scope == scope.number, *are_readers)
    for view, parent in await connection.execute(readers):
        merge_wake(wakes, (view, parent), Wake(each.partition, (each.sequence,)))
    await change(connection, scope, levels, *are_readers, status="blocked", reason=each.reason, **NOTHING_KNOWN)


async def write_key_versions(connection: AsyncConnection, scope: Scope, keys: Mapping[IndexKey, int]) -> None:
    """Raise versions of keys, in key order, so that two transactions cannot wait for each other in a circle."""
    rows = [{"scope": scope.number, "index": i, "key": k, "version": keys[i, k]} for i, k in sorted(keys)]
    await upsert(connection, key_versions, rows)


async def read_dependants(
    connection: AsyncConnection, scope: Scope, keys: Sequence[IndexKey]
) -> Sequence[Row[*tuple[Any, ...]]]:
    """View, parent and its partition, for each level that read one of the keys, with index and key."""
    return (await run(connection, scope, _dependants, pairs=keys)).all()


@built_once
def _dependants(dialect: Dialect) -> Select[Any, Any, Any, Any, Any]:
    table = dependencies.c
    columns = (table.view, table.parent, table.partition, table.index, table.key)
    return of_pairs(dialect, table.index, table.key).with_only_columns(*columns)


async def tell_readers(
    connection: AsyncConnection, scope: Scope, told: Mapping[IndexKey, tuple[int, ...]], wakes: dict[ViewParent, Wake]
) -> None:
    """Add wakes for the levels that read keys of other levels, which stand otherwise by these records.

    No record tells of a level, so versions are drawn: one that was read never comes back. They are raised first, and
    readers are looked up in a statement of its own, so that no wake is lost.
    """
    if not told:
        return
    await write_key_versions(connection, scope, dict.fromkeys(told, new_generation()))
    for view, parent, partition, index, key in await read_dependants(connection, scope, sorted(told)):
        merge_wake(wakes, (view, parent), Wake(partition, told[index, key]))


def _wake_unsettled(
    unsettled: Iterable[Mapping[str, Any]],
    touched: Mapping[str, tuple[int, ...]],
    ended: Collection[str],
    wakes: dict[ViewParent, Wake],
) -> bool:
    """Wake levels whose writes were to targets that are `touched`; tells whether other intents wait for one `ended`."""
    echoes: dict[ViewParent, set[int]] = {}
    is_awaited = False
    for row in unsettled:
        level, target = (row["view"], row["parent"]), row["target"]
        is_awaited |= row["is_pending"] and target in ended
        if target not in touched:
            continue
        merge_wake(wakes, level, Wake(row["partition"], touched[target]))
        if row["is_under_way"]:
            echoes.setdefault(level, set()).update(touched[target])
    for level, sequences in echoes.items():
        if sequences.issuperset(wakes[level].causes):
            wakes[level] = replace(wakes[level], is_echo=True)
    return is_awaited
