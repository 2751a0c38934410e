"""A database with a seam: something else can happen between what a processor read and what it writes."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.connect.database import Database


class SeamedDatabase(Database):
    """An open database; `meanwhile`, if it is set, runs once, just before the next transaction that writes."""

    def __init__(self, database: Database) -> None:
        self.__dict__.update(vars(database))  # the same engines, and on SQLite the same lock
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self._counted: list[int] = [0]
        self.is_safe = True
        """No transaction is under way here, and the last one was committed durably."""

    @property
    def transactions(self) -> int:
        """How many transactions wrote, here and through `beside`."""
        return self._counted[0]

    def beside(self) -> "SeamedDatabase":
        """The same database with a seam of its own."""
        other = SeamedDatabase(self)
        other._counted = self._counted
        return other

    @asynccontextmanager
    async def transaction(self, *, durable: bool = True) -> AsyncGenerator[AsyncConnection]:
        """As Database.transaction."""
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        self._counted[0] += 1
        self.is_safe = False
        async with super().transaction(durable=durable) as connection:
            yield connection
        self.is_safe = durable
