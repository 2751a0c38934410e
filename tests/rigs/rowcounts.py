"""How much a database does for some statements, in a number that does not depend on how fast the machine is."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.connect.database import Database
from rigs.leasing import SCOPE
from rigs.tablerows import table_row

_FILLERS: Final[dict[type, str]] = {bool: "false", int: "0", str: "''", bytes: "'null'", datetime: "noon"}


def numbered(table: Table, **given: str) -> str:
    """A statement for `fill`, which makes a row of each number `n`, from expressions for some of its columns."""
    columns = {name: _FILLERS[type(value)] for name, value in table_row(table, SCOPE).items()} | {"scope": "1"} | given
    names = ", ".join(f'"{name}"' for name in columns)
    return f"INSERT INTO {table.name} ({names}) SELECT {', '.join(columns.values())} FROM numbers"


async def fill(database: Database, statements: Iterable[str], first: int, last: int) -> None:
    """Rows with the numbers from `first` to `last`."""
    if database.is_shared:
        numbers, noon = f"generate_series({first}, {last}) AS numbers (n)", "timestamptz '2026-01-01 12:00Z'"
    else:
        one_by_one = f"WITH RECURSIVE c (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM c WHERE n < {last})"
        numbers, noon = f"({one_by_one} SELECT n FROM c)", "'2026-01-01 12:00:00.000000'"
    async with database.transaction() as connection:
        for statement in statements:
            filling = statement.replace("FROM numbers", f"FROM {numbers}").replace("noon", noon)
            await connection.execute(text(filling))


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
