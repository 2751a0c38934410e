"""Writes of levels that failed in earlier rounds, since they were last in sync. Reads only."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, Table, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.handlers.callnames import shown_write
from levelog_base.wire.records import ReceiptNoted
from levelog_store.look.overview import error_of
from levelog_store.rows import Scope, ViewParent
from levelog_store.tables import decisions, intents

_MOST_LEVELS: Final = 500
"""Of one statement, which has a term for each; SQLite takes less than 1,000."""


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
    found: dict[ViewParent, FailedBefore] = {}
    levels = sorted(before)
    for start in range(0, len(levels), _MOST_LEVELS):
        part = {level: before[level] for level in levels[start : start + _MOST_LEVELS]}
        found |= await _read_refusals(connection, scope, part)
    return found


async def _read_refusals(
    connection: AsyncConnection, scope: Scope, before: Mapping[ViewParent, int]
) -> dict[ViewParent, FailedBefore]:
    made, wrote = decisions.c, intents.c
    rested = select(made.view, made.parent, func.max(made.round)).group_by(made.view, made.parent)
    rested = rested.where(
        made.status == "in_sync", _are_in(decisions, scope, {of: range(n) for of, n in before.items()})
    )
    rests = {(view, parent): last for view, parent, last in await connection.execute(rested)}
    since = {level: range(rests.get(level, -1) + 1, end) for level, end in before.items()}
    failed = select(wrote.view, wrote.parent, func.count(), func.max(wrote.round)).group_by(wrote.view, wrote.parent)
    failed = failed.where(wrote.state == "failed", _are_in(intents, scope, since))
    found = {(view, parent): (count, last) for view, parent, count, last in await connection.execute(failed)}
    if not found:
        return {}
    newest = {level: range(last, last + 1) for level, (_, last) in found.items()}
    told = select(wrote.view, wrote.parent, wrote.receipt).order_by(wrote.ordinal)
    told = told.where(wrote.state == "failed", wrote.receipt.is_not(None), _are_in(intents, scope, newest))
    receipts = {(view, parent): receipt for view, parent, receipt in await connection.execute(told)}
    return {level: FailedBefore(count=found[level][0], last=_decode(each)) for level, each in receipts.items()}


_decode: Final = msgspec.json.Decoder(ReceiptNoted).decode


def _are_in(table: Table, scope: Scope, rounds: Mapping[ViewParent, range]) -> ColumnElement[bool]:
    """Condition that rows are of some levels, each in its rounds."""
    column = table.c
    of_levels = (
        and_(column.view == view, column.parent == parent, column.round >= each.start, column.round < each.stop)
        for (view, parent), each in rounds.items()
    )
    return and_(column.scope == scope.number, or_(*of_levels))
