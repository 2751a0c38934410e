"""Counts what is sent to databases."""

import asyncio
from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import Any

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
