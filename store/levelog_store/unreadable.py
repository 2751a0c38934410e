"""Records that could not be read and stand for something that is not known since. Reads only."""

from datetime import datetime

from msgspec import Struct
from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.tables import objects, syncs, tombstones, unreadable


class UnreadableRecord(Struct, frozen=True, kw_only=True):
    """A record that was skipped."""

    place: str
    """The object; the resource, if not even the object's name can be read; the subject of a control record."""
    sequence: int
    error: str
    recorded_at: datetime


async def read_unreadable(connection: AsyncConnection, scope: int) -> list[UnreadableRecord]:
    """What could not be read and was not told since, by a later record of the object or a later list; by place."""
    table = unreadable.c
    told = func.coalesce(objects.c.sequence, tombstones.c.sequence, syncs.c.started_sequence, 0)
    rows = await connection.execute(
        select(table.place, table.sequence, table.error, table.recorded_at)
        .outerjoin(objects, and_(objects.c.scope == table.scope, objects.c.object == table.place))
        .outerjoin(tombstones, and_(tombstones.c.scope == table.scope, tombstones.c.object == table.place))
        .outerjoin(
            syncs,
            and_(
                syncs.c.scope == table.scope,
                syncs.c.partition == table.partition,
                syncs.c.resource == table.place,
            ),
        )
        .where(table.scope == scope, table.sequence >= told)
        .order_by(table.place)
    )
    return [UnreadableRecord(**row) for row in rows.mappings()]
