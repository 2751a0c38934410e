"""Writing rows that may be there already."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


async def upsert(
    connection: AsyncConnection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    update: Collection[str] | None = None,
) -> None:
    """Insert the rows; where the primary key is there already, overwrite the columns of `update`.

    None means all columns outside the key that the rows give, nothing means to keep what is there. All rows give the
    same columns. They are written, and locked, in the order given: sort them where transactions meet.

    The drivers send rows in a pipeline. Measured on PostgreSQL with rows of 3 KB, 1,000 at a time, that is as fast as
    one statement over an array for each column, which gains only with small rows.
    """
    if not rows:
        return
    keys = {column.name for column in table.primary_key}
    changed = tuple(name for name in rows[0] if name not in keys) if update is None else tuple(update)
    await connection.execute(_statement(connection.dialect.name, table, changed), rows)


@lru_cache(maxsize=64)
def _statement(dialect: str, table: Table, changed: tuple[str, ...]) -> postgresql.Insert | sqlite.Insert:
    """Made once: to build it takes longer than to send it."""
    statement = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    keys = list(table.primary_key)
    if not changed:
        return statement.on_conflict_do_nothing(index_elements=keys)
    fresh = statement.excluded
    return statement.on_conflict_do_update(index_elements=keys, set_={name: fresh[name] for name in changed})
