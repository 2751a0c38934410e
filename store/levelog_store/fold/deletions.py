"""Rows of deleted objects, kept until their deletion is handled."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Boolean, and_, bindparam, exists, literal, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.wire.canonical import canonical
from levelog.wire.objects import DELETED
from levelog_store.actuate.claims import CLAIMED, WRITTEN, is_unsettled
from levelog_store.dialects import insert_for, one_of, remove
from levelog_store.fold.calls import IS_CALL
from levelog_store.fold.changes import EndedObject
from levelog_store.rows import Scope, StoredObject
from levelog_store.tables import dependencies, index_entries, intents, levels, objects, wakeups

PAGE: Final = 500
"""Objects of which all is deleted in one transaction."""


async def keep_deleted(connection: AsyncConnection, scope: Scope, deletions: Sequence[EndedObject]) -> None:
    """Copy the stored rows of objects to the names that they have after their deletion."""
    table = objects.c
    anew = {"object": "to", "resource": "to_resource", "name": "to_name"}
    kept = [name for name in StoredObject.__struct_fields__ if name not in (*anew, "is_deleting")]
    source = select(
        table.scope,
        *(bindparam(given, type_=table[name].type).label(name) for name, given in anew.items()),
        literal(False, Boolean).label("is_deleting"),
        *(table[name] for name in kept),
    ).where(table.scope == scope.number, table.object == bindparam("of"), table.uid == bindparam("of_uid"))
    statement = insert_for(connection.dialect, objects).from_select(["scope", *anew, "is_deleting", *kept], source)
    await connection.execute(
        statement.on_conflict_do_nothing(),
        [
            {
                "of": each.object,
                "of_uid": each.uid,
                "to": str(each.deleted),
                "to_resource": str(each.deleted.group_resource),
                "to_name": each.deleted.name,
            }
            for each in sorted(deletions, key=lambda each: str(each.deleted))
        ],
    )


async def forget_handled(connection: AsyncConnection, scope: Scope) -> int:
    """Delete rows of deleted objects with nothing left to handle, or that was given up; returns how many, up to PAGE.

    The caller holds the lease of a partition (`leases.guard`) in the same transaction.
    """
    table, mine = objects.c, objects.c.scope == scope.number
    level, wake, intent = levels.c, wakeups.c, intents.c
    has_given_up = and_(level.status == "failed", level.recheck_at.is_(None))
    is_open = exists().where(
        level.scope == table.scope, level.parent == table.object, level.status != "in_sync", ~has_given_up
    )
    is_woken = exists().where(wake.scope == table.scope, wake.parent == table.object)
    is_unheard = and_(intent.state == WRITTEN, intent.is_folded.is_(False))
    is_under_way = exists().where(  # what a call did is known once its receipt is folded
        intent.scope == table.scope,
        intent.parent_uid == table.uid,
        intent.verb == "call",
        is_unsettled(intents),
        or_(intent.state == CLAIMED, is_unheard),
    )
    found = await connection.execute(
        select(table.object, table.uid)
        .where(mine, table.resource.endswith(DELETED), ~is_open, ~is_woken, ~is_under_way)
        .limit(PAGE)
    )
    rows = found.all()
    if not rows:
        return 0
    names = [row.object for row in rows]
    keys = [canonical(row.uid).decode() for row in rows]
    await remove(connection, scope, index_entries, IS_CALL, one_of(connection.dialect, index_entries.c.key, keys))
    for each in (levels, dependencies):
        await remove(connection, scope, each, one_of(connection.dialect, each.c.parent, names))
    await remove(connection, scope, objects, one_of(connection.dialect, table.object, names))
    return len(rows)
