"""The writes of decisions with all that was asked for, to compare what is asked for now. Reads only."""

from collections.abc import Sequence

from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.clauses import one_of
from levelog_store.scopes import Scope
from levelog_store.tables import intents


class Asked(Struct, frozen=True, kw_only=True):
    """A write as a decision asked for it."""

    key: str
    verb: str
    target: str
    body: bytes


async def read_asked(connection: AsyncConnection, scope: Scope, keys: Sequence[str]) -> dict[str, Asked]:
    """What was asked for, by idempotency key, as far as it is still there."""
    table = intents.c
    columns = [table[name] for name in Asked.__struct_fields__]
    query = select(*columns).where(table.scope == scope.number, one_of(connection.dialect, table.key, keys))
    rows = await connection.execute(query)
    return {row["key"]: Asked(**row) for row in rows.mappings()}
