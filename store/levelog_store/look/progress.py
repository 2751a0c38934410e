"""How far an application is with each partition, from the log to what its writes led to. Reads only."""

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.actuate.claims import CLAIMED, PENDING, is_unsettled
from levelog_store.dialects import is_due, mappings, now
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
    point, lease, wake, intent = checkpoints.c, leases.c, wakeups.c, intents.c
    are_due = wake.scope == scope.number, is_due(connection.dialect, wake.due_at)
    due = select(wake.partition, func.count().label("due")).where(*are_due).group_by(wake.partition).subquery()
    is_open = intent.state.in_((PENDING, CLAIMED))
    counts = func.count().filter(is_open).label("open"), func.count().filter(~is_open).label("unseen")
    unsettled = select(intent.partition, *counts, func.min(intent.decided_at).label("oldest_at"))
    unsettled = unsettled.where(intent.scope == scope.number, is_unsettled(intents)).group_by(intent.partition)
    writes = unsettled.subquery()
    found = (
        select(
            point.partition,
            point.sequence.label("folded"),
            func.coalesce(lease.owner, "").label("owner"),
            *(func.coalesce(each, 0).label(each.name) for each in (due.c.due, writes.c.open, writes.c.unseen)),
            writes.c.oldest_at,
        )
        .outerjoin(leases, (lease.scope == point.scope) & (lease.partition == point.partition))
        .outerjoin(due, due.c.partition == point.partition)
        .outerjoin(writes, writes.c.partition == point.partition)
        .where(point.scope == scope.number)
        .order_by(point.partition)
    )
    return [PartitionProgress(**row) for row in mappings(await connection.execute(found))]


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
