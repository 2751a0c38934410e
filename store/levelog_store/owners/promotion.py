"""Promotes code: deletes the rows of removed functions, and marks what has to be recomputed.

Nothing is computed here: `backfills` says what the owners of the partitions have to do.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import asdict
from sqlalchemy import Table, func, insert, literal, null, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.wire.canonical import canonical
from levelog_store.dialects import change, fields, insert_for, mappings, one_of, remove, rows_of
from levelog_store.fold.levelwrites import unevaluated, wake_stored
from levelog_store.owners.handlers import Backfill, Differences, Handler, differences
from levelog_store.rows import Scope
from levelog_store.tables import (
    backfills,
    call_positions,
    dependencies,
    handlers,
    index_entries,
    intents,
    key_versions,
    levels,
    objects,
    wakeups,
)

CHANGED_CODE = "not evaluated since its code changed"
"""Reason of a level whose view has to be evaluated again."""
NOTHING_KNOWN: Final[Mapping[str, Any]] = {
    "desired": None,
    "actual": None,
    "drift": None,
    "attempts": 0,
    "inputs": "",
    "looked_at": None,
    "reads": "",
    "versions": "",
    "decided_inputs": "",
    "recheck_at": None,
    "evaluated_at": None,
    "decided_at": None,
    "since": None,
}
"""Of such a level. Rounds stay, so that no key is used twice."""


async def read_handlers(connection: AsyncConnection, scope: Scope) -> list[Handler]:
    """Handlers of the code whose results the tables hold."""
    query = select(*fields(Handler, handlers)).where(handlers.c.scope == scope.number)
    found = mappings(await connection.execute(query))
    for row in found:
        row["reads"] = tuple(msgspec.json.decode(row["reads"]))
    return [Handler(**row) for row in found]


async def promote(connection: AsyncConnection, scope: Scope, code: Sequence[Handler]) -> Differences:
    """Turn the tables of the old code into those of `code`; what to recompute is stored, not computed.

    The caller has revoked all leases in the same transaction. Unfinished backfills of unchanged functions continue.
    Unclaimed intents of views and reconcile functions that changed are superseded.
    """
    found = differences(await read_handlers(connection, scope), code)
    if not found:
        return found
    await _delete(connection, scope, (index_entries, key_versions, dependencies), "index", found.emptied)
    await _delete(connection, scope, (levels, dependencies, wakeups), "view", found.forgotten)
    await _delete(connection, scope, (call_positions,), "handler", found.forgotten)
    evaluated = [view.name for view in found.evaluated]
    await _delete(connection, scope, (dependencies,), "view", evaluated)
    is_evaluated = one_of(connection.dialect, levels.c.view, evaluated)
    await change(connection, scope, levels, is_evaluated, status="blocked", reason=CHANGED_CODE, **NOTHING_KNOWN)
    await _keep_rounds(connection, scope, {*evaluated} - found.forgotten)
    await _decide_again(connection, scope, found.decided)
    if changed := [*found.forgotten, *evaluated, *found.decided]:
        is_unsent = one_of(connection.dialect, intents.c.view, changed), intents.c.state == "pending"
        await change(connection, scope, intents, *is_unsent, state="superseded")
    await _plan(connection, scope, found)
    await remove(connection, scope, handlers)
    rows = [{"scope": scope.number, **asdict(each), "reads": canonical(each.reads)} for each in code]
    if rows:
        await connection.execute(insert(handlers), rows)
    return found


async def _delete(
    connection: AsyncConnection, scope: Scope, tables: Sequence[Table], column: str, names: Collection[str]
) -> None:
    for table in tables if names else ():
        await remove(connection, scope, table, one_of(connection.dialect, table.c[column], names))


async def _keep_rounds(connection: AsyncConnection, scope: Scope, views: Collection[str]) -> None:
    """Let a view that was there before go on with the rounds of its parents, so that no idempotency key comes twice."""
    table, held = intents.c, objects.c
    values = unevaluated(table.view, CHANGED_CODE, func.max(table.round), literal(0))
    rounds = (
        select(*values.values())
        .join(objects, (held.scope == table.scope) & (held.object == table.parent) & (held.uid == table.parent_uid))
        .where(table.scope == scope.number, one_of(connection.dialect, table.view, views))
        .group_by(held.scope, table.view, held.object, held.partition, held.uid)
    )
    await connection.execute(
        insert_for(connection.dialect, levels).from_select(list(values), rounds).on_conflict_do_nothing()
    )


async def _decide_again(connection: AsyncConnection, scope: Scope, views: Collection[str]) -> None:
    """Wake the levels of views that are not in sync, as if nothing had been decided on what they read."""
    table = levels.c
    is_open = table.drift.is_not(None), table.status.not_in(("in_sync", "deleting"))
    concerned = table.scope == scope.number, one_of(connection.dialect, table.view, views), *is_open
    await change(connection, scope, levels, *concerned, decided_inputs="", attempts=0)
    await connection.execute(wake_stored(connection.dialect, *concerned, due_at=null()))


async def _plan(connection: AsyncConnection, scope: Scope, found: Differences) -> None:
    """Store what to recompute, in each partition: the tables may not have all objects yet."""
    anew = [*found.indexed, *found.evaluated]
    gone = [*found.emptied, *found.forgotten, *(handler.name for handler in anew)]
    await _delete(connection, scope, (backfills,), "name", gone)
    jobs = (
        Backfill(name=handler.name, partition=n, kind=handler.kind, resource=handler.resource)
        for handler in anew
        for n in range(scope.partitions)
    )
    if rows := rows_of(scope, jobs):
        await connection.execute(insert(backfills), rows)
