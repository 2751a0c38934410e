"""Counts what is sent to databases."""

import asyncio
from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import asyncpg
from asyncpg.prepared_stmt import PreparedStatement
from sqlalchemy import Connection, event
from sqlalchemy import Engine as SqlEngine


class Count:
    """Statements, and commits of transactions that wrote something."""

    def __init__(self, but_not: Collection[str], beside: Collection[str]) -> None:
        self.statements = 0
        self.commits = 0
        self._but_not = but_not
        self._beside = beside
        self._writing = set[int]()

    def executed(self, connection: Connection, _cursor: object, statement: str, *_: Any) -> None:
        task = asyncio.current_task()
        if statement in self._but_not or statement.startswith("BEGIN") or (task and task.get_name() in self._beside):
            return
        self.statements += 1
        if any(word in statement for word in ("INSERT", "UPDATE", "DELETE")):
            self._writing.add(id(connection))

    def committed(self, connection: Connection) -> None:
        self.commits += id(connection) in self._writing
        self._writing.discard(id(connection))


@contextmanager
def counting(*, but_not: Collection[str] = (), beside: Collection[str] = ()) -> Generator[Count]:
    """Count in all engines, `but_not` some statements, nor those of the tasks `beside`."""
    count = Count(but_not, beside)
    listeners = (("before_cursor_execute", count.executed), ("commit", count.committed))
    for name, listener in listeners:
        event.listen(SqlEngine, name, listener)
    try:
        yield count
    finally:
        for name, listener in listeners:
            event.remove(SqlEngine, name, listener)


class RoundTrips:
    """How often asyncpg waited for the server: for statements, and for what begins and ends transactions."""

    def __init__(self) -> None:
        self.statements = 0
        self.others = 0


@contextmanager
def counting_round_trips(*, but_not: Collection[str] = (), beside: Collection[str] = ()) -> Generator[RoundTrips]:
    """Count what goes to PostgreSQL, `but_not` some statements and their transactions, nor those of tasks `beside`.

    Preparing a statement is not counted: each is prepared once by a connection.
    """
    count, fetch, many = RoundTrips(), PreparedStatement.fetch, asyncpg.Connection.executemany
    execute = asyncpg.Connection.execute
    waiting = dict[asyncpg.Connection, int]()
    """Of the transactions whose first statement has not come: round trips."""

    def is_counted() -> bool:
        task = asyncio.current_task()
        return not (task and task.get_name() in beside)

    def counted(connection: asyncpg.Connection, text: str) -> None:
        begun = waiting.pop(connection, 0)
        if text not in but_not and is_counted():
            count.statements += 1
            count.others += 2 * begun

    async def fetched(self: PreparedStatement, *values: Any, **options: Any) -> Any:
        counted(self._connection, self.get_query())  # pyright: ignore[reportPrivateUsage]
        return await fetch(self, *values, **options)

    async def executed_many(self: asyncpg.Connection, text: str, *values: Any, **options: Any) -> Any:
        counted(self, text)
        return await many(self, text, *values, **options)

    async def executed(self: asyncpg.Connection, text: str, *values: Any, **options: Any) -> Any:
        if text.startswith("BEGIN"):
            waiting[self] = 1  # which is also ended
        return await execute(self, text, *values, **options)

    with (
        patch.object(PreparedStatement, "fetch", fetched),
        patch.object(asyncpg.Connection, "executemany", executed_many),
        patch.object(asyncpg.Connection, "execute", executed),
    ):
        yield count
