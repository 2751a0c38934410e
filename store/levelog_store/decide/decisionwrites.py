"""Writes decisions, in one transaction with the wakeups that they consume."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Raw
from sqlalchemy import ColumnElement, Delete, Dialect, Insert, Select, Update, bindparam, case, delete, insert, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate

from levelog.wire.canonical import canonical
from levelog_store.actuate.claims import Claiming, insert_claimed
from levelog_store.decide.decisions import Decided, IntentRow, PendingWake
from levelog_store.dialects import built_once, delete_each, named, of_pairs, row_of, rows_of, run, upsert, write
from levelog_store.fold.levelwrites import supersede
from levelog_store.rows import ENDED, IndexKey, Scope, Verdict, ViewParent, is_of_levels
from levelog_store.tables import decisions, dependencies, intents, key_versions, levels, wakeups


class WrittenDecisions(NamedTuple):
    """What `write_decisions` came to."""

    held: list[Decided]
    """Decisions that were written."""
    claimed: set[str]
    """Keys of intents that are claimed."""


async def write_decisions(
    connection: AsyncConnection,
    scope: Scope,
    batch: Sequence[Decided],
    fingerprint: str,
    *,
    raising: Collection[IndexKey] = (),
    claiming: Claiming | None = None,
) -> WrittenDecisions:
    """Write the decisions whose reads still hold; their wakeups are left to `consume_wakes`.

    Neither holds a decision that was to withdraw an intent which an actuator has claimed meanwhile. `raising` are keys
    whose versions the caller raises next; with `claiming`, intents that can be are claimed as they are written.

    The caller holds the leases of the parents' partitions (`leases.guard`) in the same transaction.
    """
    await _add_dependencies(connection, scope, batch)
    current = await _current_versions(connection, scope, batch, raising)
    # a key that was read and has no row any more was pruned: it is read again, as one that never changed
    held = [d for d in batch if all(current.get(place) == max(version, 0) for place, version in d.versions.items())]
    written = await write_held(connection, scope, held, fingerprint, claiming=claiming)
    await _remove_dependencies(connection, scope, written.held)
    return written


async def write_held(
    connection: AsyncConnection,
    scope: Scope,
    batch: Sequence[Decided],
    fingerprint: str,
    *,
    claiming: Claiming | None = None,
) -> WrittenDecisions:
    """Write decisions, but for those that were to withdraw an intent which an actuator has claimed meanwhile."""
    withdrawn = await _withdraw(connection, scope, [key for d in batch for key in d.withdrawn])
    held = [d for d in batch if withdrawn.issuperset(d.withdrawn)]
    await upsert(connection, levels, rows_of(scope, [d.level for d in held]))
    await _write_history(connection, scope, held, fingerprint)
    return WrittenDecisions(held, await _write_intents(connection, scope, held, claiming))


async def _add_dependencies(connection: AsyncConnection, scope: Scope, batch: Sequence[Decided]) -> None:
    rows = [
        {
            "scope": scope.number,
            "view": d.wake.view,
            "parent": d.wake.parent,
            "index": index,
            "key": key,
            "partition": d.wake.partition,
        }
        for d in batch
        for index, key in sorted(d.dependencies_added)
    ]
    await upsert(connection, dependencies, rows, update=())


async def _current_versions(
    connection: AsyncConnection, scope: Scope, batch: Sequence[Decided], raising: Collection[IndexKey]
) -> Mapping[IndexKey, int]:
    """Versions of all keys read, locked, as are those that will be raised; keys that had none get one."""
    keys = {place for d in batch for place in d.versions}.union(raising)
    if not keys:
        return {}
    await make_keys(connection, scope, absent_keys(batch))
    return await lock_keys(connection, scope, sorted(keys), is_raising=bool(raising))


def absent_keys(batch: Sequence[Decided]) -> set[IndexKey]:
    """Keys that were read and had no row."""
    return {place for d in batch for place, version in d.versions.items() if version < 0}


async def make_keys(connection: AsyncConnection, scope: Scope, places: Collection[IndexKey]) -> None:
    """Give each key without a row the one that says the same: it never changed."""
    rows = [{"scope": scope.number, "index": index, "key": key, "version": 0} for index, key in sorted(places)]
    await upsert(connection, key_versions, rows, update=())


async def lock_keys(
    connection: AsyncConnection, scope: Scope, keys: Sequence[IndexKey], *, is_raising: bool = False
) -> Mapping[IndexKey, int]:
    """Versions of the keys, locked in key order so that no fold can change one before this commits.

    Who will raise some of them locks all as for that, since only one statement keeps to the order.
    """
    rows = await run(connection, scope, _lock_keys, is_raising, pairs=keys)
    return {(index, key): version for index, key, version in rows}


@built_once
def _lock_keys(dialect: Dialect, is_raising: bool) -> Select[Any]:
    table = key_versions.c
    statement = of_pairs(dialect, table.index, table.key, table.version).order_by(table.index, table.key)
    return statement.with_for_update(read=not is_raising, key_share=is_raising, of=key_versions)


async def _withdraw(connection: AsyncConnection, scope: Scope, keys: Collection[str]) -> set[str]:
    """Supersede unclaimed intents; returns their keys."""
    if not keys:
        return set()
    return set((await run(connection, scope, _withdraw_pending, keys=keys)).scalars())


@built_once
def _withdraw_pending(dialect: Dialect) -> ReturningUpdate[Any]:
    table = intents.c
    return (
        update(intents)
        .where(named(dialect, table.key, "keys"), table.state == "pending")
        .values(state="superseded")
        .returning(table.key)
    )


async def _remove_dependencies(connection: AsyncConnection, scope: Scope, batch: Sequence[Decided]) -> None:
    removed = [(d.wake.view, d.wake.parent, *place) for d in batch for place in sorted(d.dependencies_removed)]
    await delete_each(connection, scope, dependencies, ("view", "parent", "index", "key"), removed)


async def _write_intents(
    connection: AsyncConnection, scope: Scope, batch: Sequence[Decided], claiming: Claiming | None
) -> set[str]:
    if withdrawn := {(d.wake.view, d.wake.parent) for d in batch if d.withdraws}:
        await supersede(connection, scope, withdrawn)
    if settled := sorted(key for d in batch for key in d.settled):
        await run(connection, scope, _settle, keys=settled)
    rows = [_intent_values(scope, d, intent) for d in batch for intent in d.intents]
    if called := sorted(intent.key for d in batch for intent in d.intents if intent.verb == "call"):
        # one that has ended is asked for again under the key that it had, as after a withdrawal
        await run(connection, scope, _remove_ended, keys=called)
    claimed = set[str]()
    if claiming is not None:
        wanted = [row for row in rows if row["key"] in claiming.keys and row["state"] == "pending"]
        claimed = await insert_claimed(connection, scope, wanted, claiming)
    rows = [row for row in rows if row["key"] not in claimed]
    await upsert(connection, intents, rows, update=("round", "ordinal"))  # a call that goes on is one of its new round
    return claimed


@built_once
def _remove_ended(dialect: Dialect) -> Delete:
    table = intents.c
    is_ended = table.state.in_(ENDED)
    return delete(intents).where(named(dialect, table.key, "keys"), is_ended)


@built_once
def _settle(dialect: Dialect) -> Update:
    table = intents.c
    return (
        update(intents)
        .where(named(dialect, table.key, "keys"))
        .values(state=case((table.error != "", "failed"), else_="settled"))  # a conflict has an error
    )


def _intent_values(scope: Scope, decided: Decided, intent: IntentRow) -> dict[str, Any]:
    return {
        "scope": scope.number,
        **{name: getattr(intent, name) for name in IntentRow.__struct_fields__},
        "view": decided.wake.view,
        "parent": decided.wake.parent,
        "parent_uid": decided.level.parent_uid,
        "partition": decided.wake.partition,
        "attempts": 0,
        "owner": "",
        "claim": 0,
        "error": "",
        "outcome": "",
        "cause": decided.wake.cause,
        "decided_at": decided.level.evaluated_at,
        "is_relayed": False,
        "is_folded": False,
        "result_uid": "",
        "result_version": 0,
    }


_OF_LEVEL: Final = (*Verdict.__struct_fields__, "view", "parent", "parent_uid", "cause")


async def _write_history(connection: AsyncConnection, scope: Scope, batch: Sequence[Decided], fingerprint: str) -> None:
    rows = [
        {
            "scope": scope.number,
            **{name: getattr(d.level, name) for name in _OF_LEVEL},
            "parent_sequence": d.parent_sequence,
            "causes": d.wake.causes,
            "suppressed": d.suppressed,
            "is_called": d.is_evaluated,
            "reads": canonical(_reads(d)),
            "intents": canonical([intent.key for intent in d.intents]),
            "fingerprint": fingerprint,
            "decided_at": d.decided_at or d.level.evaluated_at,
            "snapshot": sum(d.basis.folded),
            "basis": canonical(d.basis),
        }
        for d in batch
        if d.is_kept
    ]
    await write(connection, _keep(), rows)


@built_once
def _keep() -> Insert:
    return insert(decisions).inline()  # nobody asks for its number


def _reads(decided: Decided) -> list[tuple[str, str, int, Raw | None]]:
    contents = decided.contents
    return [
        (*place, version, Raw(contents[place]) if place in contents else None)
        for place, version in sorted(decided.versions.items())
        if not is_of_levels(place)  # in the basis: no record tells of them
    ]


async def consume_wakes(
    connection: AsyncConnection,
    scope: Scope,
    batch: Sequence[Decided],
    stray: Sequence[PendingWake] = (),
    *,
    without_rows: Collection[ViewParent] = (),
) -> None:
    """Delete the wakeups of decisions, or put them off until their time; one that was asked for again stays due.

    That one keeps its causes, so that the next decision names those of this one again. Levels `without_rows` are those
    whose wakeups are not written; `stray` wakeups are of parents that do not exist.
    """
    ordered = [d for d in sorted(batch, key=lambda d: d.name) if d.name not in without_rows]
    done = [*stray, *(d.wake for d in ordered if d.due_at is None)]
    later = [_seen(scope, d.wake) | {"at": d.due_at, "left": _causes_left(d)} for d in ordered if d.due_at is not None]
    in_order = sorted(done, key=lambda wake: (wake.view, wake.parent))
    await write(connection, _delete_wakes(), [_seen(scope, wake) for wake in in_order])
    await write(connection, _put_off_wakes(), later)
    await _add_timers(connection, scope, [d for d in batch if d.name in without_rows])


_OF_WAKE: Final = ("view", "parent", "partition", "cause", "generation")


async def _add_timers(connection: AsyncConnection, scope: Scope, batch: Sequence[Decided]) -> None:
    """Note when levels are due that no wakeup asked for; one that was written meanwhile is due before that."""
    rows = [
        {"scope": scope.number, "causes": _causes_left(d), "due_at": d.due_at}
        | {name: getattr(d.wake, name) for name in _OF_WAKE}
        for d in sorted(batch, key=lambda d: d.name)
        if d.due_at is not None
    ]
    await upsert(connection, wakeups, rows, update=())


def _causes_left(decided: Decided) -> str:
    return decided.wake.causes if decided.is_put_off else ""


def _seen(scope: Scope, wake: PendingWake) -> dict[str, Any]:
    return {"of_scope": scope.number, "of_view": wake.view, "of_parent": wake.parent, "of_generation": wake.generation}


@built_once
def _delete_wakes() -> Delete:
    return delete(wakeups).where(_is_as_seen())


@built_once
def _put_off_wakes() -> Update:
    at = bindparam("at", type_=wakeups.c.due_at.type)
    return update(wakeups).where(_is_as_seen()).values(due_at=at, causes=bindparam("left"))


def _is_as_seen() -> ColumnElement[bool]:
    return row_of(wakeups, "view", "parent", "generation")
