"""A database that loses its newest commits, as PostgreSQL does in a crash where commits do not wait for the disk."""

from typing import Any

from sqlalchemy import delete, insert, select

from levelog_store.connect.database import Database
from levelog_store.tables import leases, metadata, processors, scopes

Kept = dict[str, list[dict[str, Any]]]

_DURABLE = {leases.name, processors.name, scopes.name}
"""Tables whose commits wait for the disk."""


async def keep(database: Database) -> Kept:
    """All rows that a crash from now on may lose."""
    async with database.reading() as connection:
        return {
            table.name: [dict(row) for row in (await connection.execute(select(table))).mappings()]
            for table in metadata.sorted_tables
            if table.name not in _DURABLE
        }


async def lose(database: Database, kept: Kept) -> None:
    """Let the tables be as they were when the rows were kept."""
    async with database.transaction() as connection:
        for name, rows in kept.items():
            table = metadata.tables[name]
            await connection.execute(delete(table))
            if rows:
                await connection.execute(insert(table), rows)
