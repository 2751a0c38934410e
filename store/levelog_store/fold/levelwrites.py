"""How the fold and `levelog retry` change levels: wakeups, receipts, sightings, levels of deleted parents."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from secrets import randbits
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Dialect,
    Integer,
    Select,
    Text,
    Update,
    and_,
    bindparam,
    case,
    func,
    literal,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.handlers.indexers import applied_place
from levelog.wire.records import TargetSighted
from levelog_store.actuate.claims import IS_KEY
from levelog_store.actuate.outcomes import values_of
from levelog_store.connect.database import Database
from levelog_store.dialects import (
    OF_SCOPE,
    built_once,
    delete_each,
    insert_for,
    locked,
    now,
    of_pairs,
    one_of,
    row_of,
    run,
    there_is,
    write,
)
from levelog_store.fold.calls import forget_calls
from levelog_store.fold.changes import FoldedReceipt, Wake, appended, noted
from levelog_store.rows import UNSETTLED, Scope, ViewParent
from levelog_store.tables import dependencies, index_entries, intents, levels, objects, wakeups


async def write_receipts(
    connection: AsyncConnection, scope: Scope, receipts: Sequence[FoldedReceipt], *, gone: Collection[ViewParent]
) -> None:
    """End the intents whose receipts these are, and raise the rounds of their levels to at least the receipts'.

    Levels that are `gone` were just forgotten.
    """
    rows = [
        values_of(scope, each.record)
        | {"by": each.record.process, "new_state": "settled" if each.is_shown else each.record.state}
        for each in sorted(receipts, key=lambda each: each.record.key)
    ]
    apart = [each for each in receipts if not each.is_at_round or each.level in gone]
    await write(connection, end_intents(connection.dialect, have_levels=not apart), rows)
    await _raise_rounds(connection, scope, [each for each in apart if each.has_view])


_HAS_PARENT: Final = there_is(
    objects.c.scope == intents.c.scope, objects.c.object == intents.c.parent, objects.c.uid == intents.c.parent_uid
)
"""Nobody waits for what was written for a parent that is gone, such as the end of its own finalizer."""
_HAS_LEVEL: Final = there_is(
    levels.c.scope == intents.c.scope, levels.c.view == intents.c.view, levels.c.parent == intents.c.parent
)
"""Nor for a call, which its receipt settles, if the filters exclude the parent."""


@built_once
def end_intents(dialect: Dialect, *, have_levels: bool) -> Update:
    """End the row `of_key`, but not by a receipt of an earlier claim than the one that holds or ended it.

    A row that was claimed and is no longer may be ended by any of its receipts. Where all `have_levels`, no other table
    is read, so that PostgreSQL can do it along with other changes.
    """
    table = intents.c
    final = or_(*(table.state == state for state in ("settled", "satisfied", "failed")))  # no IN for many rows at once
    told_state, is_first = bindparam("new_state", type_=Text), table.receipt.is_(None)
    is_left = or_(~_HAS_PARENT, and_(table.verb == "call", ~_HAS_LEVEL))
    left_state = case((and_(told_state == "written", is_left), "settled"), else_=told_state)
    to_state = told_state if have_levels else left_state
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


async def write_sightings(connection: AsyncConnection, scope: Scope, sightings: Sequence[TargetSighted]) -> None:
    """Note what the API had of the targets of intents, the last of each."""
    table = intents.c
    statement = (
        update(intents)
        .where(table.scope == scope.number, table.key == bindparam("of"))
        .values(sighted_version=bindparam("had"), sighted_at=bindparam("at", type_=table.sighted_at.type))
    )
    newest = {each.key: each for each in sightings}  # in the order of the log
    await connection.execute(
        statement, [{"of": key, "had": each.target_version, "at": each.time} for key, each in sorted(newest.items())]
    )


async def _raise_rounds(connection: AsyncConnection, scope: Scope, receipts: Sequence[FoldedReceipt]) -> None:
    """Rounds never fall below a receipt's, also where the level itself is still to be rebuilt from the log.

    A level is made only where its intents are lost, too: else they tell the round once it is decided on, if it is.
    """
    newest = {each.level: each for each in sorted(receipts, key=lambda each: each.record.round)}
    await write(
        connection,
        _raise_levels(connection.dialect),
        [
            {
                "of_scope": scope.number,
                "of_view": view,
                "of_parent": parent,
                "of_uid": each.record.parent_uid,
                "of_key": each.record.key,
                "to": each.record.round,
                "at": each.sequence,
            }
            for (view, parent), each in sorted(newest.items())
        ],
    )


def unevaluated(
    view: ColumnElement[str], reason: str, round_: ColumnElement[int], cause: ColumnElement[int]
) -> dict[str, ColumnElement[Any]]:
    """Columns of a level that is made for a row of `objects` without an evaluation."""
    held = objects.c
    return {
        "scope": held.scope,
        "view": view,
        "parent": held.object,
        "partition": held.partition,
        "parent_uid": held.uid,
        "status": literal("blocked"),
        "reason": literal(reason),
        "round": round_,
        "cause": cause,
        **{name: literal(0) for name in ("attempts", "evaluations")},
        **{name: literal("") for name in ("inputs", "reads", "decided_inputs")},
    }


@built_once
def _raise_levels(dialect: Dialect) -> postgresql.Insert | sqlite.Insert:
    held, reason = objects.c, "not evaluated since its history was folded again"
    view, to, at = bindparam("of_view", type_=Text), bindparam("to", type_=Integer), bindparam("at", type_=BigInteger)
    values = unevaluated(view, reason, to, at)
    is_parent = held.object == bindparam("of_parent"), held.uid == bindparam("of_uid")
    level, intent = levels.c, intents.c
    has_level = there_is(level.scope == OF_SCOPE, level.view == view, level.parent == held.object)
    has_intent = there_is(intent.scope == OF_SCOPE, intent.key == bindparam("of_key"))
    source = select(*values.values()).where(held.scope == OF_SCOPE, *is_parent, or_(has_level, ~has_intent))
    statement = insert_for(dialect, levels).from_select(list(values), source)
    return statement.on_conflict_do_update(
        index_elements=list(levels.primary_key),
        set_={"round": statement.excluded.round},
        where=(levels.c.round < statement.excluded.round) & (levels.c.parent_uid == statement.excluded.parent_uid),
    )


ASKED_FOR: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Due time of levels that are to be tried again: it has come by every clock, also once a fold wakes them for itself.

A reconcile function is called for a time that has come although nothing has changed.
"""

RETRIABLE: Final = ("failed", "blocked", "drifting")
"""Statuses of levels that there is something to try again of; of one that is settling, if writes of it wait."""


async def retry_levels(database: Database, scope: Scope, of: Collection[ViewParent]) -> None:
    """Make levels due for evaluation and reconciliation, and their writes that wait for a retry due for sending.

    Any process may do this, beside those of the application: it only adds wakeups. Each is a transaction, since who
    holds all partitions changes wakeups in no order. The last is durable, and so are those before it.
    """
    named = _named(scope, of)
    if not named:
        return
    due_at = literal(ASKED_FOR, wakeups.c.due_at.type)
    wake = wake_stored(database.dialect, row_of(levels, "view", "parent"), due_at=due_at)
    async with database.transaction(durable=False) as connection:
        await connection.execute(_hurry_writes(database.dialect), named)
    for each in named:
        async with database.transaction(durable=each is named[-1]) as connection:
            await connection.execute(wake, each)


async def wake_stuck(connection: AsyncConnection, scope: Scope) -> int:
    """Ask for the levels that settle although none of their writes is under way; returns how many there are.

    No rule leads there. Rows that were lost or changed by other hands do, and nothing else would wake the level.
    """
    level, intent, wake = levels.c, intents.c, wakeups.c

    def of_level(table: Any) -> tuple[ColumnElement[bool], ...]:
        return table.scope == level.scope, table.view == level.view, table.parent == level.parent

    is_under_way, is_woken = there_is(*of_level(intent), intent.state.in_(UNSETTLED)), there_is(*of_level(wake))
    is_stuck = level.scope == scope.number, level.status == "settling", ~is_under_way, ~is_woken
    due_at = literal(ASKED_FOR, wake.due_at.type)
    return (await connection.execute(wake_stored(connection.dialect, *is_stuck, due_at=due_at))).rowcount


async def wake_from_ahead(
    connection: AsyncConnection, scope: Scope, partitions: Collection[int], at: datetime | None
) -> None:
    """Ask for the levels that were decided on later than `at`, by default now, unless something asks for them already.

    The caller holds the leases of the partitions (`leases.guard`) in the same transaction.
    """
    level, wake, dialect = levels.c, wakeups.c, connection.dialect
    time = now(dialect) if at is None else literal(at, level.decided_at.type)
    of_level = wake.scope == level.scope, wake.view == level.view, wake.parent == level.parent
    is_woken = there_is(*of_level, or_(wake.due_at.is_(None), wake.due_at <= time))
    are_meant = level.scope == scope.number, one_of(dialect, level.partition, partitions), level.decided_at > time
    await connection.execute(wake_stored(dialect, *are_meant, ~is_woken, due_at=null()))


@built_once
def _hurry_writes(dialect: Dialect) -> Update:
    """Let writes of a level be sent that wait for a retry; who changes one at this moment decides when it is sent."""
    table = intents.c
    is_open = or_(table.state == "pending", table.state == "claimed")  # no IN for many rows at once
    of_level = table.view == bindparam("of_view"), table.parent == bindparam("of_parent")
    waits = locked(dialect, intents, *of_level, is_open, table.owner == "", table.due_at > now(dialect), skip=True)
    return update(intents).where(waits).values(due_at=now(dialect))


async def forget_levels(connection: AsyncConnection, scope: Scope, gone: Collection[ViewParent]) -> None:
    """Delete the levels of parents that are gone, and supersede unsent intents; wakeups are left to the caller."""
    for table in (levels, dependencies):
        await delete_each(connection, scope, table, ("view", "parent"), sorted(gone))
    applied = [applied_place(view, parent) for view, parent in sorted(gone)]
    await delete_each(connection, scope, index_entries, ("index", "key"), applied)
    await supersede(connection, scope, gone)


async def forget_orphans(
    connection: AsyncConnection, scope: Scope, partition: int, views: Collection[str]
) -> set[ViewParent]:
    """Delete levels that outlived a reset of the tables while their parents did not, and return them."""
    table = levels.c
    is_held = there_is(objects.c.scope == scope.number, objects.c.object == table.parent)
    are_meant = table.partition == partition, one_of(connection.dialect, table.view, views), ~is_held
    orphans = await connection.execute(select(table.view, table.parent).where(table.scope == scope.number, *are_meant))
    if gone := {(view, parent) for view, parent in orphans}:
        await forget_levels(connection, scope, gone)
        await forget_calls(connection, scope, {parent for _, parent in gone})
    return gone


async def supersede(connection: AsyncConnection, scope: Scope, of: Collection[ViewParent]) -> None:
    """Withdraw the unclaimed intents of levels, and settle what was written for parents that are gone."""
    table = intents.c
    is_left = and_(table.state == "written", table.is_folded, ~_HAS_PARENT)
    ended = case((table.state == "pending", "superseded"), (table.error != "", "failed"), else_="settled")
    await connection.execute(
        update(intents)
        .where(row_of(intents, "view", "parent"), or_(table.state == "pending", is_left))
        .values(state=ended),
        _named(scope, of),
    )


def _named(scope: Scope, levels_: Collection[ViewParent]) -> list[dict[str, Any]]:
    return [{"of_scope": scope.number, "of_view": view, "of_parent": parent} for view, parent in sorted(levels_)]


async def lock_wakes(connection: AsyncConnection, scope: Scope, of: Collection[ViewParent]) -> None:
    """Lock the wakeups of levels in the order in which everybody does.

    For a transaction that changes some in one statement and some in another, while other processors change them, too.
    SQLite has one writer at a time, and no such locks.
    """
    if connection.dialect.name == "postgresql" and len(of) > 1:
        await run(connection, scope, _lock_wakes, pairs=sorted(of))


@built_once
def _lock_wakes(dialect: Dialect) -> Select[Any]:
    place = wakeups.c.view, wakeups.c.parent
    return of_pairs(dialect, *place).order_by(*place).with_for_update(of=wakeups)


def new_generation() -> int:
    """What identifies requests for levels from all others, also from those that were forgotten with their parents.

    Drawn, not counted: a count would have to outlive the row.
    """
    return randbits(62)


async def write_wakes(
    connection: AsyncConnection,
    scope: Scope,
    wakes: Mapping[ViewParent, Wake],
    *,
    generation: int | None = None,
    seen: Mapping[ViewParent, int] | None = None,
) -> None:
    """Write wakeups for levels; one that is scheduled for later becomes due now, but what was asked for stays so.

    They get the `generation`, but of those that were `seen` in another one, whoever asked for them since keeps the own:
    a decision for what was seen does not answer that.
    """
    generation = new_generation() if generation is None else generation
    rows = [
        {
            "scope": scope.number,
            "view": level[0],
            "parent": level[1],
            "partition": wake.partition,
            "cause": wake.cause,
            "causes": noted(wake.causes),
            "generation": generation,
            "due_at": None,
            **({} if seen is None else {"of_generation": seen[level]}),
        }
        for level, wake in sorted(wakes.items())
    ]
    await write(connection, _wake_levels(connection.dialect, are_seen=seen is not None), rows)


def wake_stored(
    dialect: Dialect, *conditions: ColumnElement[bool], due_at: ColumnElement[Any]
) -> postgresql.Insert | sqlite.Insert:
    """Ask once more for the levels that are rows and meet the conditions, with the cause that they have."""
    columns = ("scope", "view", "parent", "partition", "cause")
    source = select(*(levels.c[name] for name in columns), literal(new_generation(), BigInteger), due_at)
    source = source.where(*conditions).order_by(levels.c.view, levels.c.parent)
    statement = insert_for(dialect, wakeups).from_select([*columns, "generation", "due_at"], source)
    return statement.on_conflict_do_update(
        index_elements=list(wakeups.primary_key),
        set_={name: statement.excluded[name] for name in ("generation", "due_at")},
    )


@built_once
def _wake_levels(dialect: Dialect, *, are_seen: bool) -> postgresql.Insert | sqlite.Insert:
    statement = insert_for(dialect, wakeups)
    fresh = statement.excluded
    is_as_seen = wakeups.c.generation == bindparam("of_generation", type_=BigInteger)
    later = case((wakeups.c.cause > fresh.cause, wakeups.c.cause), else_=fresh.cause)
    is_asked_for = wakeups.c.due_at == literal(ASKED_FOR, wakeups.c.due_at.type)
    return statement.on_conflict_do_update(
        index_elements=list(wakeups.primary_key),
        set_={
            "cause": later,
            "causes": appended(wakeups.c.causes, fresh.causes),
            "generation": case((is_as_seen, fresh.generation), else_=wakeups.c.generation)
            if are_seen
            else fresh.generation,
            "due_at": case((is_asked_for, wakeups.c.due_at), else_=null()),
        },
    )
