"""Heartbeats of actuators: until one expires, nobody else ends the actuator's claims; then others take them over.

All times are the database's. An actuator that beats too late is alive again, and its claims have perhaps
ended: it can tell by its own clock, which knows when the last heartbeat expired at the latest.
"""

from datetime import datetime, timedelta

from sqlalchemy import Dialect, Text, and_, bindparam, exists, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningInsert

from levelog_store.actuate.claims import end_claims
from levelog_store.dialects import OF_SCOPE, built_once, insert_for, now, one_of, remove, run
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
    dialect, alive = connection.dialect, actuators.c
    gone = (
        select(alive.owner, (alive.expires_at <= now(dialect, -grace)).label("is_over"))
        .where(alive.scope == scope.number, alive.expires_at <= now(dialect))
        .order_by(alive.owner)
        .with_for_update(skip_locked=True)
    )
    rows = (await connection.execute(gone)).all()
    if not rows:
        return 0
    over = [row.owner for row in rows if row.is_over]
    table = intents.c
    is_first_write = and_(table.attempts <= 1, table.verb.not_in(("call", "event")))  # with a request as `brief` has it
    is_over = or_(is_first_write, one_of(dialect, table.owner, over))
    ended = await end_claims(connection, scope, one_of(dialect, table.owner, [row.owner for row in rows]), is_over)
    await remove(connection, scope, actuators, one_of(dialect, alive.owner, over))
    return ended
