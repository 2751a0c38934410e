"""What to do with stored times of the outbox once the database's clock was set back: nothing waits for it to catch up.

A time is known to be of a clock that was ahead if it was stored later than now, or if it is further away than any that
is stored of its kind. What was put off then waits from now on for as long as it was put off.
"""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.actuate.claims import IS_IN_SCOPE, IS_KEY, WRITTEN, is_unsettled
from levelog_store.dialects import Timestamp, locked, now
from levelog_store.rows import Scope
from levelog_store.tables import actuators, intents


async def plan_anew(connection: AsyncConnection, scope: Scope, *, lease: timedelta, heartbeat: timedelta) -> None:
    """Count from now what a clock said that was ahead: retries, ends of claims and of heartbeats, looks at writes."""
    dialect, table, of_scope = connection.dialect, intents.c, {"of_scope": scope.number}
    ends = now(dialect, heartbeat)
    is_longer = locked(dialect, actuators, actuators.c.expires_at > ends)
    await connection.execute(update(actuators).where(is_longer).values(expires_at=ends), of_scope)
    waiting = (
        select(
            *(table[name] for name in ("key", "owner", "due_at", "expires_at")),
            (table.state == WRITTEN).label("is_written"),
            now(dialect).label("now"),
        )
        .where(IS_IN_SCOPE, is_unsettled(intents), table.due_at > now(dialect))
        .order_by(table.key)
        .with_for_update()
    )
    planned = [(row, *_planned(row, lease)) for row in await connection.execute(waiting, of_scope)]
    sooner = [of_scope | {"of_key": row.key, "at": at, "ends": ends} for row, at, ends in planned if at < row.due_at]
    if sooner:
        at, ends = (bindparam(name, type_=Timestamp()) for name in ("at", "ends"))
        await connection.execute(update(intents).where(IS_KEY).values(due_at=at, expires_at=ends), sooner)


def _planned(row: Any, lease: timedelta) -> tuple[datetime, datetime | None]:
    """When the intent is due, and when its claim ends or has ended."""
    if row.is_written:
        return row.now, row.expires_at
    if row.owner:
        ends = min(row.due_at, row.now + lease)
        return ends, ends
    given_back = row.expires_at or row.now
    return row.now + (row.due_at - given_back), row.now
