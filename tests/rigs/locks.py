"""Transactions of PostgreSQL that wait for each other."""

from sqlalchemy import text

from levelog_store.connect.database import Database
from rigs.waiting import until


async def until_one_waits(database: Database, what: str = "a transaction that waits for a lock", many: int = 1) -> None:
    """Wait until some session waits for a lock, or several do; `what` as `until` takes it."""
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )

    async def is_there() -> bool:
        async with database.reading() as connection:
            return int(await connection.scalar(waiting) or 0) >= many

    await until(is_there, what)
