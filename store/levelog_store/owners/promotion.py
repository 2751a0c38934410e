"""Promoting code: what the tables hold of handlers that are gone goes, and what changed is marked to be computed anew.

Nothing is computed here: `backfills` says what the owners of the partitions have to do.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import BigInteger, delete, func, insert, literal, null, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.wire.canonical import canonical
from levelog_store.dialects import insert_for, one_of
from levelog_store.fold.levelwrites import new_generation
from levelog_store.owners.handlers import Differences, Handler, differences
from levelog_store.rows import Scope
from levelog_store.tables import (
    backfills,
    dependencies,
    event_holds,
    event_positions,
    handlers,
    index_entries,
    intents,
    key_versions,
    levels,
    objects,
    wakeups,
)

CHANGED_CODE = "not evaluated since its code changed"
"""Reason of a level whose view is to be evaluated anew."""
NOTHING_KNOWN: Final[Mapping[str, Any]] = {
    "desired": null(),
    "actual": null(),
    "drift": null(),
    "attempts": 0,
    "inputs": "",
    "looked_at": null(),
    "reads": "",
    "versions": "",
    "decided_inputs": "",
    "recheck_at": null(),
    "evaluated_at": null(),
    "since": null(),
}
"""Columns of such a level. Rounds stay, so that no key is used twice."""


async def read_handlers(connection: AsyncConnection, scope: Scope) -> list[Handler]:
    """Handlers of the code whose results the tables hold."""
    rows = await connection.execute(select(handlers).where(handlers.c.scope == scope.number))
    return [
        Handler(
            kind=row.kind,
            name=row.name,
            fingerprint=row.fingerprint,
            resource=row.resource,
            reads=tuple(msgspec.json.decode(row.reads)),
        )
        for row in rows
    ]


async def promote(connection: AsyncConnection, scope: Scope, code: Sequence[Handler]) -> Differences:
    """Turn the tables from those of the code that they hold into those of `code`, but for what is to be computed.

    The caller has taken all leases away in the same transaction. What was to be computed for the older code and is
    the same in this one goes on where it is. Intents that no actuator has claimed yet are superseded where they are of
    a view or reconcile function that changed.
    """
    found = differences(await read_handlers(connection, scope), code)
    if not found:
        return found
    await _empty_indices(connection, scope, found.emptied)
    await _forget_views(connection, scope, found.forgotten)
    await _silence(connection, scope, found.silenced)
    evaluated = [view.name for view in found.evaluated]
    await _block_levels(connection, scope, evaluated)
    await _keep_rounds(connection, scope, evaluated)
    await _decide_again(connection, scope, found.decided)
    await _supersede(connection, scope, [*found.forgotten, *evaluated, *found.decided])
    await _plan(connection, scope, found)
    await connection.execute(delete(handlers).where(handlers.c.scope == scope.number))
    rows = [
        {"scope": scope.number, **{name: getattr(each, name) for name in Handler.__struct_fields__}}
        | {"reads": canonical(each.reads)}
        for each in code
    ]
    if rows:
        await connection.execute(insert(handlers), rows)
    return found


async def _empty_indices(connection: AsyncConnection, scope: Scope, names: Collection[str]) -> None:
    if names:
        for table in (index_entries, key_versions, dependencies):
            await connection.execute(
                delete(table).where(table.c.scope == scope.number, one_of(connection.dialect, table.c.index, names))
            )


async def _forget_views(connection: AsyncConnection, scope: Scope, names: Collection[str]) -> None:
    if names:
        for table in (levels, dependencies, wakeups):
            await connection.execute(
                delete(table).where(table.c.scope == scope.number, one_of(connection.dialect, table.c.view, names))
            )


async def _silence(connection: AsyncConnection, scope: Scope, names: Collection[str]) -> None:
    if names:
        for table in (event_positions, event_holds):
            await connection.execute(
                delete(table).where(table.c.scope == scope.number, one_of(connection.dialect, table.c.handler, names))
            )


async def _block_levels(connection: AsyncConnection, scope: Scope, views: Collection[str]) -> None:
    """Forget what the levels of views were evaluated and decided on; rounds stay, so that no key is used twice."""
    if not views:
        return
    table = dependencies.c
    await connection.execute(
        delete(dependencies).where(table.scope == scope.number, one_of(connection.dialect, table.view, views))
    )
    await connection.execute(
        update(levels)
        .where(levels.c.scope == scope.number, one_of(connection.dialect, levels.c.view, views))
        .values(status="blocked", reason=CHANGED_CODE, **NOTHING_KNOWN)
    )


async def _keep_rounds(connection: AsyncConnection, scope: Scope, views: Collection[str]) -> None:
    """Let a view that was there before go on with the rounds of its parents, so that no idempotency key comes twice."""
    if not views:
        return
    table, held = intents.c, objects.c
    values: dict[str, Any] = {
        "scope": table.scope,
        "view": table.view,
        "parent": table.parent,
        "partition": held.partition,
        "parent_uid": held.uid,
        "status": literal("blocked"),
        "reason": literal(CHANGED_CODE),
        "round": func.max(table.round),
        **{name: literal(0) for name in ("attempts", "evaluations", "cause")},
        **{name: literal("") for name in ("inputs", "reads", "decided_inputs")},
    }
    rounds = (
        select(*values.values())
        .join(objects, (held.scope == table.scope) & (held.object == table.parent) & (held.uid == table.parent_uid))
        .where(table.scope == scope.number, one_of(connection.dialect, table.view, views))
        .group_by(table.scope, table.view, table.parent, held.partition, held.uid)
    )
    await connection.execute(
        insert_for(connection.dialect, levels).from_select(list(values), rounds).on_conflict_do_nothing()
    )


async def _decide_again(connection: AsyncConnection, scope: Scope, views: Collection[str]) -> None:
    """Wake the levels of views that are not in sync, as if nothing had been decided on what they read."""
    if not views:
        return
    table = levels.c
    concerned = (
        table.scope == scope.number,
        one_of(connection.dialect, table.view, views),
        table.drift.is_not(None),
        table.status.not_in(("in_sync", "deleting")),
    )
    await connection.execute(update(levels).where(*concerned).values(decided_inputs="", attempts=0))
    woken = select(
        table.scope,
        table.view,
        table.parent,
        table.partition,
        table.cause,
        literal(new_generation(), BigInteger),
        null().label("due_at"),
    ).where(*concerned)
    statement = insert_for(connection.dialect, wakeups).from_select(
        ["scope", "view", "parent", "partition", "cause", "generation", "due_at"], woken
    )
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=[wakeups.c.scope, wakeups.c.view, wakeups.c.parent],
            set_={"generation": statement.excluded.generation, "due_at": null()},
        )
    )


async def _supersede(connection: AsyncConnection, scope: Scope, views: Collection[str]) -> None:
    if views:
        table = intents.c
        await connection.execute(
            update(intents)
            .where(table.scope == scope.number, one_of(connection.dialect, table.view, views), table.state == "pending")
            .values(state="superseded")
        )


async def _plan(connection: AsyncConnection, scope: Scope, found: Differences) -> None:
    """Note what has to be computed anew, and in which partitions; nothing where there are no objects yet."""
    anew = [*found.indexed, *found.evaluated]
    gone = [*found.emptied, *found.forgotten, *(handler.name for handler in anew)]
    if gone:
        await connection.execute(
            delete(backfills).where(
                backfills.c.scope == scope.number, one_of(connection.dialect, backfills.c.name, gone)
            )
        )
    populated = await _populated(connection, scope, {handler.resource for handler in anew})
    rows = [
        {
            "scope": scope.number,
            "name": handler.name,
            "partition": partition,
            "kind": handler.kind,
            "resource": handler.resource,
            "position": "",
            "objects": 0,
            "is_done": False,
        }
        for handler in anew
        for partition in sorted(populated.get(handler.resource, ()))
    ]
    if rows:
        await connection.execute(insert(backfills), rows)


async def _populated(connection: AsyncConnection, scope: Scope, resources: Iterable[str]) -> dict[str, list[int]]:
    """Partitions that hold objects of each resource."""
    table = objects.c
    rows = await connection.execute(
        select(table.resource, table.partition)
        .where(table.scope == scope.number, one_of(connection.dialect, table.resource, list(resources)))
        .distinct()
    )
    found: dict[str, list[int]] = {}
    for resource, partition in rows:
        found.setdefault(resource, []).append(partition)
    return found
