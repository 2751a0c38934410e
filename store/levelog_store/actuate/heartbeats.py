"""Heartbeats of actuators: until one expires, nobody else ends the actuator's claims; then others take them over.

All times are the database's. An actuator that beats too late is alive again, and its claims have perhaps
ended: it can tell by its own clock, which knows when the last heartbeat expired at the latest.
"""

from datetime import datetime, timedelta

from sqlalchemy import and_, exists, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.actuate.claims import end_claims
from levelog_store.dialects import insert_for, now, one_of, remove
from levelog_store.rows import Scope
from levelog_store.tables import actuators, intents


async def beat(connection: AsyncConnection, scope: Scope, owner: str, duration: timedelta) -> tuple[datetime, bool]:
    """Say that an actuator is alive for so long from now; returns now, and whether a heartbeat of others expired."""
    dialect, others = connection.dialect, actuators.alias().c
    row = insert_for(dialect, actuators).values(scope=scope.number, owner=owner, expires_at=now(dialect, duration))
    has_gone = exists().where(others.scope == scope.number, others.expires_at <= now(dialect))
    changed = {"expires_at": row.excluded.expires_at}
    beaten = row.on_conflict_do_update(index_elements=list(actuators.primary_key), set_=changed)
    (found,) = await connection.execute(beaten.returning(now(dialect).label("moment"), has_gone.label("has_gone")))
    return found.moment, found.has_gone


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
