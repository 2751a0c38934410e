"""Writes of levels that failed in earlier rounds, since they were last in sync. Reads only."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, Table, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.handlers.callnames import shown_write
from levelog.wire.records import ReceiptNoted
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
    rested = select(decisions.c.view, decisions.c.parent, func.max(decisions.c.round).label("round")).where(
        decisions.c.scope == scope.number, decisions.c.status == "in_sync", _within(decisions, before, {})
    )
    rests = {
        (row.view, row.parent): row.round
        for row in await connection.execute(rested.group_by(decisions.c.view, decisions.c.parent))
    }
    column, level = intents.c, (intents.c.view, intents.c.parent)
    newest = func.row_number().over(partition_by=level, order_by=(column.round.desc(), column.ordinal.desc()))
    failed = (
        select(
            *level,
            column.receipt,
            func.count().over(partition_by=level).label("refusals"),
            newest.label("newest"),
        )
        .where(
            column.scope == scope.number,
            column.receipt.is_not(None),
            column.state == "failed",
            _within(intents, before, rests),
        )
        .subquery()
    )
    rows = (await connection.execute(select(failed).where(failed.c.newest == 1))).all()
    return {(row.view, row.parent): FailedBefore(count=row.refusals, last=_decode(row.receipt)) for row in rows}


_decode: Final = msgspec.json.Decoder(ReceiptNoted).decode


def _within(table: Table, before: Mapping[ViewParent, int], rests: Mapping[ViewParent, int]) -> ColumnElement[bool]:
    """Condition that a row is of a round before the given one, and after that in which the level rested."""
    column = table.c
    return or_(
        *(
            and_(
                column.view == view,
                column.parent == parent,
                column.round < number,
                column.round > rests.get((view, parent), -1),
            )
            for (view, parent), number in before.items()
        )
    )
