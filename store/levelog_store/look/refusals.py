"""Writes of levels that failed in earlier rounds, since they were last in sync. Reads only."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, Dialect, Select, Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.handlers.callnames import shown_write
from levelog_base.wire.records import ReceiptNoted
from levelog_store.dialects import one_of
from levelog_store.look.overview import error_of
from levelog_store.rows import Scope, ViewParent
from levelog_store.tables import decisions, intents


class FailedBefore(Struct, frozen=True, kw_only=True):
    """Those of one level: how many there were, and the last of them."""

    count: int
    last: ReceiptNoted

    @property
    def write(self) -> str:
        """The last of them."""
        return shown_write(self.last.view, self.last.verb, str(self.last.target))

    @property
    def why(self) -> str:
        """Its error."""
        return error_of(self.last.view, self.last.verb, str(self.last.target), self.last.error)


async def read_refusals(
    connection: AsyncConnection, scope: Scope, before: Mapping[ViewParent, int]
) -> dict[ViewParent, FailedBefore]:
    """What failed of levels in rounds before the given ones; levels without any are missing."""
    if not before:
        return {}
    rests: dict[ViewParent, int] = {}
    for row in await connection.execute(_rounds(connection.dialect, scope, decisions, before, "in_sync")):
        if row.round < before.get(level := (row.view, row.parent), 0):
            rests[level] = max(rests.get(level, 0), row.round)
    counts: dict[ViewParent, int] = {}
    newest: dict[ViewParent, int] = {}
    for row in await connection.execute(_rounds(connection.dialect, scope, intents, before, "failed")):
        if rests.get(level := (row.view, row.parent), -1) < row.round < before.get(level, 0):
            counts[level] = counts.get(level, 0) + row.rows
            newest[level] = max(newest.get(level, 0), row.round)
    if not newest:
        return {}
    column = intents.c
    query = (
        select(column.view, column.parent, column.round, column.receipt)
        .where(*_are_of(connection.dialect, scope, intents, newest, "failed"), column.receipt.is_not(None))
        .where(one_of(connection.dialect, column.round, {*newest.values()}))
        .order_by(column.ordinal)
    )
    rows = (await connection.execute(query)).all()
    last = {(row.view, row.parent): row.receipt for row in rows if newest.get((row.view, row.parent)) == row.round}
    return {level: FailedBefore(count=counts[level], last=_decode(receipt)) for level, receipt in last.items()}


_decode: Final = msgspec.json.Decoder(ReceiptNoted).decode


def _rounds(
    dialect: Dialect, scope: Scope, table: Table, levels: Collection[ViewParent], state: str
) -> Select[str, str, int, int]:
    """Rounds of which there are such rows, with how many; also of levels that mix these views and parents."""
    column = table.c
    query = select(column.view, column.parent, column.round, func.count().label("rows"))
    return query.where(*_are_of(dialect, scope, table, levels, state)).group_by(
        column.view, column.parent, column.round
    )


def _are_of(
    dialect: Dialect, scope: Scope, table: Table, levels: Collection[ViewParent], state: str
) -> Iterator[ColumnElement[bool]]:
    column = table.c
    yield column.scope == scope.number
    yield one_of(dialect, column.view, {view for view, _ in levels})
    yield one_of(dialect, column.parent, {parent for _, parent in levels})
    yield (column.state if table is intents else column.status) == state
