"""Heartbeats of actuators: until one expires, nobody else ends the actuator's claims; then others take them over.

All times are the database's. An actuator that beats too late is alive again, and its claims have perhaps
ended: it can tell by its own clock, which knows when the last heartbeat expired at the latest.
"""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Dialect, Select, Text, Update, and_, bindparam, exists, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningInsert

from levelog_store.actuate.claims import CLAIMED
from levelog_store.dialects import OF_SCOPE, built_once, insert_for, locked, now, one_of, one_of_named, remove, run
from levelog_store.rows import Scope
from levelog_store.tables import actuators, intents


async def beat(connection: AsyncConnection, scope: Scope, owner: str, duration: timedelta) -> tuple[datetime, bool]:
    """Say that an actuator is alive for so long from now; returns now, and whether a heartbeat of others expired."""
    (row,) = await run(connection, scope, _beat, duration, alive=owner)
    return row.moment, row.has_gone


@built_once
def _beat(dialect: Dialect, duration: timedelta) -> ReturningInsert[datetime, bool]:
    values = {"scope": OF_SCOPE, "owner": bindparam("alive", type_=Text), "expires_at": now(dialect, duration)}
    row = insert_for(dialect, actuators).values(values)
    others = actuators.alias().c
    has_gone = exists().where(others.scope == OF_SCOPE, others.expires_at <= now(dialect))
    changed = {"expires_at": row.excluded.expires_at}
    statement = row.on_conflict_do_update(index_elements=list(actuators.primary_key), set_=changed)
    return statement.returning(now(dialect).label("moment"), has_gone.label("has_gone"))


async def end_claims_of_gone(connection: AsyncConnection, scope: Scope, grace: timedelta) -> int:
    """End the claims of actuators whose heartbeat has expired; returns how many.

    Those under which only a short request can be on its way end at once, the others after `grace`. Whoever says that it
    is here at the same moment waits for this to commit, or is left alone.
    """
    rows = (await run(connection, scope, _gone, grace)).all()
    if not rows:
        return 0
    over = [row.owner for row in rows if row.is_over]
    ended = await run(connection, scope, _end, gone=[row.owner for row in rows], over=over)
    await remove(connection, scope, actuators, one_of(connection.dialect, actuators.c.owner, over))
    return ended.rowcount


@built_once
def _gone(dialect: Dialect, grace: timedelta) -> Select[Any, bool]:
    table = actuators.c
    return (
        select(table.owner, (table.expires_at <= now(dialect, -grace)).label("is_over"))
        .where(table.scope == OF_SCOPE, table.expires_at <= now(dialect))
        .order_by(table.owner)
        .with_for_update(skip_locked=True)
    )


@built_once
def _end(dialect: Dialect) -> Update:
    table = intents.c
    is_first_write = and_(table.attempts <= 1, table.verb.not_in(("call", "event")))  # with a request as `brief` has it
    is_over = or_(is_first_write, one_of_named(dialect, table.owner, "over"))
    return (
        update(intents)
        .where(locked(dialect, intents, table.state == CLAIMED, one_of_named(dialect, table.owner, "gone"), is_over))
        .values(due_at=now(dialect), expires_at=now(dialect), owner="")
    )
