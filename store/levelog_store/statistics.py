"""Statistics that PostgreSQL plans by, made as soon as new tables have rows; autovacuum comes about a minute later.

Without them it takes a scope for a small part of a table, and reads all of it where a key would do.
"""

from typing import Final

from sqlalchemy import text

from levelog_store.database import Database
from levelog_store.tables import dependencies, index_entries, intents, key_versions, levels, objects, wakeups

HOT: Final = frozenset(
    table.name for table in (dependencies, index_entries, intents, key_versions, levels, objects, wakeups)
)
"""Tables that are looked up by many keys at once."""


async def analyze_new(database: Database) -> list[str]:
    """Analyze the hot tables that have rows and no statistics; returns those that are still empty, sorted.

    A user who does not own the tables gets warnings in the server's log and no statistics. SQLite needs none.
    """
    if not database.is_shared:
        return []
    empty: list[str] = []
    async with database.transaction(durable=False) as connection:
        rows = await connection.execute(
            text(
                "SELECT relname, pg_relation_size(oid) AS bytes FROM pg_class "
                "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND reltuples <= 0"
            )
        )
        for name, size in sorted((row.relname, row.bytes) for row in rows if row.relname in HOT):
            if size == 0:
                empty.append(name)
            else:
                await connection.exec_driver_sql(f"ANALYZE {name}")
    return empty
