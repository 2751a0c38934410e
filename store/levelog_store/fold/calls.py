"""Finished calls of effects: entries of the effects' indices, which outlive the log."""

from datetime import timedelta
from typing import Final

from msgspec import Struct
from sqlalchemy import ColumnElement, and_, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.handlers.indexers import MARK
from levelog_store.dialects import change, now
from levelog_store.rows import Scope
from levelog_store.tables import index_entries, scopes

_ENTRY: Final = index_entries.c
IS_CALL: Final[ColumnElement[bool]] = and_(
    _ENTRY.object > MARK, _ENTRY.object < chr(ord(MARK) + 1), ~_ENTRY.index.like(f"%/{MARK}%")
)
"""The entry is of the index of an effect: no object has such a name, and no other entry in an index without a mark."""


class StoredCall(Struct, frozen=True):
    """An entry of the index of an effect."""

    index: str
    key: str
    object: str
    value: bytes


async def is_time_to_record(connection: AsyncConnection, scope: Scope, every: timedelta | None) -> bool:
    """Tell whether all calls have to be recorded: never was in this log, or not for so long; None: once is enough.

    A clock that was ahead does not count.
    """
    at, dialect = scopes.c.calls_recorded_at, connection.dialect
    is_old = or_(at.is_(None), at <= now(dialect, -every), at > now(dialect)) if every else at.is_(None)
    return (await connection.execute(select(at).where(scopes.c.scope == scope.number, is_old))).first() is not None


async def note_recorded(connection: AsyncConnection, scope: Scope) -> None:
    """Note that all calls were recorded just now."""
    await change(connection, scope, scopes, calls_recorded_at=now(connection.dialect))


async def read_calls(
    connection: AsyncConnection, scope: Scope, limit: int, *, after: StoredCall | None
) -> list[StoredCall]:
    """Up to `limit` calls, those that follow another one."""
    place = (_ENTRY.index, _ENTRY.key, _ENTRY.object)
    query = select(*place, _ENTRY.value).where(_ENTRY.scope == scope.number, IS_CALL).order_by(*place).limit(limit)
    if after is not None:
        query = query.where(tuple_(*place) > tuple_(after.index, after.key, after.object))
    return [StoredCall(*row) for row in await connection.execute(query)]
