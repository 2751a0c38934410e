"""Writes decisions, with the levels and intents that they lead to."""

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Raw
from sqlalchemy import Delete, Dialect, Insert, Update, bindparam, delete, insert, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate

from levelog_base.wire.canonical import canonical
from levelog_store.actuate.claims import Claiming, insert_claimed
from levelog_store.decide.decisions import Decided, IntentRow
from levelog_store.dialects import built_once, named, rows_of, run, upsert, write
from levelog_store.fold.ends import SETTLED, supersede
from levelog_store.rows import ENDED, Scope, Verdict, is_of_levels
from levelog_store.tables import decisions, intents, levels


class WrittenDecisions(NamedTuple):
    """What `write_valid` came to."""

    valid: list[Decided]
    """Decisions that were written."""
    claimed: set[str]
    """Keys of intents that are claimed."""


async def write_valid(
    connection: AsyncConnection,
    scope: Scope,
    batch: Sequence[Decided],
    fingerprint: str,
    *,
    claiming: Claiming | None = None,
) -> WrittenDecisions:
    """Write decisions, but for those on an intent that was unclaimed and that an actuator has claimed meanwhile."""
    withdrawn = await _change_unclaimed(connection, scope, [key for d in batch for key in d.withdrawn], "superseded")
    going_on = await _change_unclaimed(connection, scope, [key for d in batch for key in d.continued], "pending")
    valid = [d for d in batch if withdrawn.issuperset(d.withdrawn) and going_on.issuperset(d.continued)]
    await upsert(connection, levels, rows_of(scope, [d.level for d in valid]))
    await _write_history(connection, scope, valid, fingerprint)
    return WrittenDecisions(valid, await _write_intents(connection, scope, valid, claiming))


async def _change_unclaimed(connection: AsyncConnection, scope: Scope, keys: Collection[str], to: str) -> set[str]:
    """Give those of these intents a state that nobody has claimed, nor will before this commits; returns their keys."""
    if not keys:
        return set()
    return set((await run(connection, scope, _unclaimed, keys=keys, to=to)).scalars())


@built_once
def _unclaimed(dialect: Dialect) -> ReturningUpdate[Any]:
    table = intents.c
    return (
        update(intents)
        .where(named(dialect, table.key, "keys"), table.state == "pending")
        .values(state=bindparam("to", type_=table.state.type))
        .returning(table.key)
    )


async def _write_intents(
    connection: AsyncConnection, scope: Scope, batch: Sequence[Decided], claiming: Claiming | None
) -> set[str]:
    await supersede(connection, scope, {d.name: d.level.parent_uid for d in batch if d.withdraws})
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
    return update(intents).where(named(dialect, intents.c.key, "keys")).values(state=SETTLED)


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
    await write(connection, _keep(), [history_of(scope, each, fingerprint) for each in batch if each.is_recorded])


def history_of(scope: Scope, decided: Decided, fingerprint: str) -> dict[str, Any]:
    """The row of `decisions` for a decision, but for its number."""
    return {
        "scope": scope.number,
        **{name: getattr(decided.level, name) for name in _OF_LEVEL},
        "parent_sequence": decided.parent_sequence,
        "causes": decided.wake.causes,
        "suppressed": decided.suppressed,
        "is_called": decided.is_evaluated,
        "reads": canonical(_reads(decided)),
        "intents": canonical([intent.key for intent in decided.intents]),
        "fingerprint": fingerprint,
        "decided_at": decided.seen_at or decided.level.evaluated_at,
        "snapshot": sum(decided.basis.folded),
        "basis": canonical(decided.basis),
    }


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
