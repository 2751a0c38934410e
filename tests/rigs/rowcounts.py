"""How much a database does for some statements, in a number that does not depend on how fast the machine is."""

from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.connect.database import Database


async def work_of(database: Database, run: Callable[[AsyncConnection], Awaitable[Any]]) -> int:
    """Rows that PostgreSQL reads from tables, or instructions (in hundreds) that SQLite executes; then rolled back."""
    async with database.transaction() as connection, connection.begin_nested() as savepoint:
        counted = await (_rows_read if database.is_shared else _instructions)(connection, run)
        await savepoint.rollback()
    return counted


async def _rows_read(connection: AsyncConnection, run: Callable[[AsyncConnection], Awaitable[Any]]) -> int:
    read = text("SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables")
    before = await connection.scalar(read)
    await run(connection)
    after = await connection.scalar(read)
    return int(after or 0) - int(before or 0)


async def _instructions(connection: AsyncConnection, run: Callable[[AsyncConnection], Awaitable[Any]]) -> int:
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    driver: Any = (await connection.get_raw_connection()).driver_connection
    driver.set_progress_handler(count, 100)
    await run(connection)
    driver.set_progress_handler(None, 0)
    return counted
