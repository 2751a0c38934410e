"""How far the processors of applications are, for their users. Reads only."""

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.tables import decisions


async def read_newest_ordinal(connection: AsyncConnection) -> int:
    """Ordinal of the newest decision of any application; 0: there is none."""
    return await connection.scalar(select(func.max(decisions.c.ordinal))) or 0
