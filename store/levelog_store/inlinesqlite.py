"""SQLite on the thread of the event loop, for tables that nobody but the caller waits for.

aiosqlite hands each statement to a thread and waits for its answer, so that a loop which serves others is not held up.
Where nobody else waits, as in a replay, the two hops cost more than the statement.
"""

import sqlite3
from collections import deque
from typing import Any, Final

from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.base import SQLiteExecutionContext
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util.concurrency import await_

INLINE: Final = "sqlite+inline"


class _Cursor(sqlite3.Cursor):
    """Has all rows once a statement was executed, so that it holds no snapshot open."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._rows: deque[Any] = deque()

    def execute(self, *arguments: Any) -> Any:
        super().execute(*arguments)
        self._rows = deque(super().fetchall())
        return self

    def fetchone(self) -> Any:
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int | None = None) -> list[Any]:
        return [self._rows.popleft() for _ in range(min(size or self.arraysize, len(self._rows)))]

    def fetchall(self) -> list[Any]:
        rows, self._rows = list(self._rows), deque()
        return rows

    async def _async_soft_close(self) -> None:
        """Do nothing: an async engine calls it where a result is read after its statement."""


class _Context(SQLiteExecutionContext):
    def create_default_cursor(self) -> Any:
        return self._dbapi_connection.cursor(_Cursor)

    def create_server_side_cursor(self) -> Any:
        """One that reads row by row, for streams."""
        return self._dbapi_connection.cursor()


class InlineSqlite(SQLiteDialect_pysqlite):
    """The dialect of Python's sqlite3 module, as SQLAlchemy's async engines take it."""

    driver = "inline"
    is_async = True
    supports_statement_cache = True
    supports_server_side_cursors = True
    execution_ctx_cls = _Context

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:  # noqa: ARG002
        """Execute, and await nothing: an async engine refuses a driver that never awaits."""
        cursor.execute(statement, parameters)
        await_(_nothing())

    def do_executemany(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:  # noqa: ARG002
        """Execute for each row."""
        cursor.executemany(statement, parameters)
        await_(_nothing())


async def _nothing() -> None:
    pass


registry.register(INLINE.replace("+", "."), __name__, InlineSqlite.__name__)
