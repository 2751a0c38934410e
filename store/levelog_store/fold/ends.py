"""What folded records end of that which only SQL keeps: intents, levels of parents that are gone, checkpoints."""

from collections.abc import Container, Mapping
from typing import Final

from msgspec import Struct
from sqlalchemy import Dialect, Update, and_, bindparam, case, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_base.wire.records import TargetObserved
from levelog_store.actuate.outcomes import values_of
from levelog_store.dialects import (
    built_once,
    change,
    delete_each,
    is_of_resource,
    one_of,
    row_of,
    rows_of,
    upsert,
    write,
)
from levelog_store.fold.changes import Checkpoint, FoldedReceipt
from levelog_store.fold.checkpoints import write_checkpoints
from levelog_store.fold.levelwrites import end_intents, write_observations
from levelog_store.rows import Input, LevelRow, Scope, ViewParent
from levelog_store.tables import intents, levels


class Ends(Struct):
    """What folded records have ended of that which SQL keeps, and has not been told there."""

    checkpoints: dict[int, Checkpoint] = {}
    receipts: list[tuple[FoldedReceipt, str]] = []
    """With the state that each leaves its intent in, unless a later claim holds that."""
    observations: list[TargetObserved] = []
    gone: dict[ViewParent, str] = {}
    """Levels, with the uid that their parent has now; empty: none."""
    levels: dict[ViewParent, LevelRow] = {}
    """Levels that are otherwise without a decision: blocked, or at a later round."""
    unmade: dict[str, LevelRow] = {}
    """Levels that are made for their round alone, if the intent of this key, which tells it, is lost."""
    reverted: list[Input] = []
    """Partitions and resources of which nothing that was written will be shown any more."""

    def __bool__(self) -> bool:
        return bool(self.receipts or self.observations or self.gone or self.levels or self.unmade or self.reverted)

    def made(self, kept: Container[str]) -> list[LevelRow]:
        """The levels that are made, each at its last round, if these are the intents that there are."""
        lost = sorted((row for key, row in self.unmade.items() if key not in kept), key=lambda row: row.round)
        return [*{(row.view, row.parent): row for row in lost}.values()]


SETTLED: Final = case((intents.c.error != "", "failed"), else_="settled")
"""State of a written intent once the log shows it; a conflict has an error."""


async def write_ends(connection: AsyncConnection, scope: Scope, ends: Ends) -> list[LevelRow]:
    """Write them, and return the levels that were made.

    The caller holds the leases of the partitions (`leases.guard`) in the same transaction.
    """
    await write_checkpoints(connection, scope, ends.checkpoints)
    if ends.gone:
        await delete_each(connection, scope, levels, ("view", "parent"), sorted(ends.gone))
    for partition, resource in ends.reverted:
        are_targets = intents.c.partition == partition, is_of_resource(intents.c.target, resource)
        await change(connection, scope, intents, intents.c.state == "written", *are_targets, state="settled")
    if ends.receipts:
        told = sorted(ends.receipts, key=lambda each: each[0].record.key)
        rows = [values_of(scope, each.record) | {"by": each.record.process, "new_state": state} for each, state in told]
        await write(connection, end_intents(connection.dialect), rows)
    if ends.gone:  # after receipts that were folded while the parent was there
        await supersede(connection, scope, ends.gone)
    if ends.observations:
        await write_observations(connection, scope, ends.observations)
    made: list[LevelRow] = []
    if ends.unmade:
        is_told = one_of(connection.dialect, intents.c.key, ends.unmade)
        kept = await connection.scalars(select(intents.c.key).where(intents.c.scope == scope.number, is_told))
        made = ends.made({*kept})
    await upsert(connection, levels, rows_of(scope, [*made, *(row for _, row in sorted(ends.levels.items()))]))
    return made


async def supersede(connection: AsyncConnection, scope: Scope, of: Mapping[ViewParent, str]) -> None:
    """Withdraw the unclaimed intents of levels, and settle what was written for other parents than these uids."""
    rows = [
        {"of_scope": scope.number, "of_view": view, "of_parent": parent, "uid": uid}
        for (view, parent), uid in sorted(of.items())
    ]
    await write(connection, _supersede(connection.dialect), rows)


@built_once
def _supersede(_: Dialect) -> Update:
    """Withdraw unclaimed intents, and settle what was written for other parents than there are now."""
    table = intents.c
    is_left = and_(table.state == "written", table.is_folded, table.parent_uid != bindparam("uid"))
    ended = case((table.state == "pending", "superseded"), else_=SETTLED)
    is_meant = row_of(intents, "view", "parent"), or_(table.state == "pending", is_left)
    return update(intents).where(*is_meant).values(state=ended)
