"""What folded records end of that which only SQL keeps: intents, levels of parents that are gone, checkpoints."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Dialect, Integer, Text, Update, and_, bindparam, case, func, null, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_base.wire.records import ReceiptNoted, TargetObserved
from levelog_store.actuate.claims import IS_KEY
from levelog_store.actuate.outcomes import values_of
from levelog_store.decide.decisions import OpenIntent
from levelog_store.decide.inputreads import SqlIntent
from levelog_store.dialects import (
    built_once,
    change,
    delete_each,
    is_of_resource,
    now,
    one_of,
    row_of,
    rows_of,
    upsert,
    write,
)
from levelog_store.fold.changes import Checkpoint, FoldedReceipt
from levelog_store.fold.checkpoints import write_checkpoints
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

    def applied_to(self, intents: Iterable[SqlIntent]) -> list[OpenIntent]:
        """The intents as `write_ends` will have them."""
        receipts: dict[str, list[tuple[ReceiptNoted, str]]] = {}
        for folded, state in sorted(self.receipts, key=lambda each: each[0].record.key):
            receipts.setdefault(folded.record.key, []).append((folded.record, state))
        observations = {each.key: each for each in self.observations}
        found: list[OpenIntent] = []
        for each in intents:
            intent = each.intent
            for record, state in receipts.get(intent.key, ()):
                intent = _ended(intent, each.owner, record, state)
            if (observed := observations.get(intent.key)) is not None:
                intent = replace(intent, observed_version=observed.target_version, observed_at=observed.time)
            found.append(intent)
        return found

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
        await write(connection, _end_intents(connection.dialect), rows)
    if ends.gone:  # after receipts that were folded while the parent was there
        await supersede(connection, scope, ends.gone)
    if ends.observations:
        await _write_observations(connection, scope, ends.observations)
    made: list[LevelRow] = []
    if ends.unmade:
        is_told = one_of(connection.dialect, intents.c.key, ends.unmade)
        kept = await connection.scalars(select(intents.c.key).where(intents.c.scope == scope.number, is_told))
        made = ends.made({*kept})
    await upsert(connection, levels, rows_of(scope, [*made, *(row for _, row in sorted(ends.levels.items()))]))
    return made


@built_once
def _end_intents(dialect: Dialect) -> Update:
    """End the row `of_key`, but not by a receipt of an earlier claim than the one that holds or ended it.

    A row that was claimed and is no longer may be ended by any of its receipts.
    """
    table = intents.c
    final = or_(*(table.state == state for state in ("settled", "satisfied", "failed")))  # no IN for many rows at once
    to_state, is_first = bindparam("new_state", type_=Text), table.receipt.is_(None)
    made, is_owners = bindparam("new_attempts", type_=Integer), table.owner == bindparam("by")
    is_of_claim = or_(table.state != "claimed", table.owner == "", and_(is_owners, table.attempts == made))
    is_latest = or_(table.state != "written", table.attempts <= made)
    return (
        update(intents)
        .where(IS_KEY, is_of_claim, is_latest)
        .values(
            state=case((final, table.state), else_=to_state),
            outcome=case((is_first, bindparam("new_outcome", type_=Text)), else_=table.outcome),
            error=case((is_first, bindparam("new_error", type_=Text)), else_=table.error),
            receipt=func.coalesce(table.receipt, bindparam("new_receipt", type_=table.receipt.type)),
            due_at=case((final, table.due_at), (to_state == "written", now(dialect)), else_=null()),
            expires_at=None,
            is_relayed=True,
            is_folded=True,
            result_uid=bindparam("new_result_uid"),
            result_version=bindparam("new_result_version"),
        )
    )


def _ended(intent: OpenIntent, owner: str, record: ReceiptNoted, state: str) -> OpenIntent:
    """The same in memory, of one intent and receipt."""
    is_of_claim = (
        intent.state != "claimed" or not owner or (owner == record.process and intent.attempts == record.attempts)
    )
    is_latest = intent.state != "written" or intent.attempts <= record.attempts
    if not is_of_claim or not is_latest:
        return intent
    is_first = not intent.outcome
    outcome = record.outcome if is_first else intent.outcome
    return replace(
        intent,
        state=intent.state if intent.state in ("settled", "satisfied", "failed") else state,
        outcome=outcome,
        error=record.error if is_first else intent.error,
        answer=record.answer if is_first and outcome == "failed" else intent.answer,
        is_folded=True,
        result_uid=record.target_uid,
        result_version=record.target_version,
    )


async def _write_observations(
    connection: AsyncConnection, scope: Scope, observations: Sequence[TargetObserved]
) -> None:
    """Note what the API had of the targets of intents, the last of each."""
    table = intents.c
    statement = (
        update(intents)
        .where(table.scope == scope.number, table.key == bindparam("of"))
        .values(observed_version=bindparam("had"), observed_at=bindparam("at", type_=table.observed_at.type))
    )
    newest = {each.key: each for each in observations}  # in the order of the log
    await connection.execute(
        statement, [{"of": key, "had": each.target_version, "at": each.time} for key, each in sorted(newest.items())]
    )


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
