"""How far an application is with each partition, from the log to what its writes led to. Reads only."""

from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.actuate.claims import CLAIMED, PENDING, is_unsettled
from levelog_store.dialects import now
from levelog_store.rows import Scope
from levelog_store.tables import checkpoints, decisions, intents, leases, wakeups

_MOST_DECISIONS: Final = 2000


class PartitionProgress(Struct, frozen=True, kw_only=True):
    """One partition."""

    partition: int
    folded: int
    """Sequence of the last record of the partition that is in the tables."""
    owner: str = ""
    """Processor that leases it; empty: none."""
    due: int = 0
    """Levels that wait to be looked at."""
    open: int = 0
    """Writes that are to be sent, or are being sent."""
    unseen: int = 0
    """Writes that the API has answered, and the log has not shown."""
    oldest_at: datetime | None = None
    """When the oldest of all these writes was decided."""


async def read_progress(connection: AsyncConnection, scope: Scope) -> list[PartitionProgress]:
    """All partitions, in order."""
    found = {row.partition: row for row in await _by_partition(connection, scope)}
    due = wakeups.c.due_at.is_(None) | (wakeups.c.due_at <= now(connection.dialect))
    of_scope = select(wakeups.c.partition, func.count().label("due")).where(wakeups.c.scope == scope.number, due)
    waiting = {row.partition: row.due for row in await connection.execute(of_scope.group_by(wakeups.c.partition))}
    writes: dict[int, list[Any]] = {}
    column = intents.c
    counts = func.count().label("writes"), func.min(column.decided_at).label("at")
    unsettled = select(column.partition, column.state, *counts)
    rows = unsettled.where(column.scope == scope.number, is_unsettled(intents)).group_by(column.partition, column.state)
    for row in await connection.execute(rows):
        writes.setdefault(row.partition, []).append(row)
    return [
        PartitionProgress(
            partition=partition,
            folded=row.sequence,
            owner=row.owner or "",
            due=waiting.get(partition, 0),
            open=sum(each.writes for each in writes.get(partition, []) if each.state in (PENDING, CLAIMED)),
            unseen=sum(each.writes for each in writes.get(partition, []) if each.state not in (PENDING, CLAIMED)),
            oldest_at=min((each.at for each in writes.get(partition, [])), default=None),
        )
        for partition, row in sorted(found.items())
    ]


async def _by_partition(connection: AsyncConnection, scope: Scope) -> list[Any]:
    point, lease = checkpoints.c, leases.c
    is_same = (lease.scope == point.scope) & (lease.partition == point.partition)
    query = select(point.partition, point.sequence, lease.owner).outerjoin(leases, is_same)
    return list(await connection.execute(query.where(point.scope == scope.number)))


async def read_newest_ordinal(connection: AsyncConnection) -> int:
    """Ordinal of the newest decision of any application; 0: there is none."""
    return await connection.scalar(select(func.max(decisions.c.ordinal))) or 0


async def count_decided(connection: AsyncConnection, scope: Scope, within: timedelta) -> int:
    """Decisions of the time that passed last; of very many, the newest ones are counted."""
    newest = await read_newest_ordinal(connection)
    made = decisions.c
    is_new = made.decided_at >= now(connection.dialect, -within)
    query = select(func.count()).where(made.ordinal > newest - _MOST_DECISIONS, made.scope == scope.number, is_new)
    return await connection.scalar(query) or 0
