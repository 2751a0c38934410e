"""A database that loses its newest commits, as PostgreSQL does in a crash where commits do not wait for the disk."""

from typing import Any

from sqlalchemy import Table, delete, insert, select

from levelog_store.connect.database import Database
from levelog_store.rows import Scope
from levelog_store.tables import actuators, leases, metadata, processors, scopes

Kept = dict[str, list[dict[str, Any]]]

_DURABLE = {actuators.name, leases.name, processors.name, scopes.name}
"""Tables whose commits wait for the disk."""


async def keep(database: Database, scope: Scope) -> Kept:
    """All rows of a scope that a crash from now on may lose."""
    async with database.reading() as connection:

        async def rows(table: Table) -> list[dict[str, Any]]:
            found = await connection.execute(select(table).where(table.c.scope == scope.number))
            return [dict(row) for row in found.mappings()]

        return {table.name: await rows(table) for table in metadata.sorted_tables if table.name not in _DURABLE}


async def lose(database: Database, scope: Scope, kept: Kept) -> None:
    """Let the tables be as they were when the rows were kept."""
    async with database.transaction() as connection:
        for name, rows in kept.items():
            table = metadata.tables[name]
            await connection.execute(delete(table).where(table.c.scope == scope.number))
            if rows:
                await connection.execute(insert(table), rows)
