"""What comes of claimed intents: stores results, gives back what is to be tried again, finds what no log shows."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, Final, TypeAlias

from msgspec import Struct
from sqlalchemy import (
    Dialect,
    Row,
    Select,
    Text,
    Update,
    and_,
    bindparam,
    case,
    exists,
    null,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate

from levelog_base.wire.canonical import canonical
from levelog_base.wire.records import ReceiptNoted
from levelog_store.actuate.claims import (
    IS_KEY,
    IS_OF_CLAIM,
    IS_OWNERS,
    OF_LEVEL,
    PENDING,
    WRITTEN,
    is_one_of_keys,
    is_unsettled,
)
from levelog_store.dialects import (
    OF_SCOPE,
    Timestamp,
    built_once,
    has_match,
    locked,
    now,
    one_of_named,
    run,
    write,
)
from levelog_store.rows import Scope
from levelog_store.tables import intents, levels

LOOK_AFTER: Final = timedelta(seconds=30)
"""So long the log may take to show a write before somebody looks."""


ClaimReceipt: TypeAlias = tuple[ReceiptNoted, int]
"""What became of an intent, and the number of the claim that it came of."""


class Postponement(Struct, frozen=True, kw_only=True):
    """An intent that its claimant gives back, to be claimed again after a delay."""

    key: str
    claim: int
    delay: timedelta
    error: str
    attempts: int
    is_doubtful: bool
    """A request may have taken effect."""


class UnseenWrite(Struct, frozen=True, kw_only=True):
    """A write that the log has not shown for a while, and whose level waits for it."""

    key: str
    view: str
    parent: str
    parent_uid: str
    target: str
    api_version: str
    result_version: int
    observed_version: int | None
    """What the log tells of the last look; None: nothing yet."""
    age: timedelta
    """Since it was decided."""


_RESULTS: Final = ("state", "outcome", "error", "attempts", "result_uid", "result_version", "receipt", "is_relayed")
_UNSEEN: Final = tuple(name for name in UnseenWrite.__struct_fields__ if name != "age")


async def store_receipts(
    connection: AsyncConnection,
    scope: Scope,
    owner: str,
    receipts: Sequence[ClaimReceipt],
    *,
    is_relayed: bool = False,
    beside: Sequence[str] = (),
) -> dict[str, bool]:
    """Store the results of claimed intents; returns the keys that the owner still held under the same claim.

    With each key comes whether another committed intent waits for the same target. The other intents were ended by the
    fold, or claimed again; whoever did that reads their targets. Intents `beside` are locked with them, for what this
    transaction changes next. `is_relayed`: the receipts are in the log already.
    """
    under = {receipt.key: claim for receipt, claim in receipts}
    rows = (await run(connection, scope, lock_claimed, of_keys=[*under, *beside], by=owner)).all()
    owned = {key: is_waiting for key, claim, is_waiting in rows if claim == under.get(key)}
    ended = [values_of(scope, each) | {"new_is_relayed": is_relayed} for each, _ in receipts if each.key in owned]
    if ended:
        await connection.execute(end(connection.dialect), ended)
    return owned


def values_of(scope: Scope, receipt: ReceiptNoted) -> dict[str, Any]:
    """What a statement takes that ends the row `of_key` by its receipt."""
    return {
        "of_scope": scope.number,
        "of_key": receipt.key,
        "new_state": receipt.state,
        "new_outcome": receipt.outcome,
        "new_error": receipt.error,
        "new_attempts": receipt.attempts,
        "new_result_uid": receipt.target_uid,
        "new_result_version": receipt.target_version,
        "new_receipt": canonical(receipt),
    }


@built_once
def lock_claimed(dialect: Dialect) -> Select[str, int, bool]:
    """Which of the rows `of_keys` their owner holds, also if the claim has ended; locked where there are row locks.

    Each with the number of the claim, and whether another row waits for its target.
    """
    other = intents.alias("other")
    of_target = and_(other.c.scope == OF_SCOPE, other.c.target == intents.c.target)
    waits = exists().where(of_target, is_unsettled(other), other.c.state == PENDING)
    return (
        select(intents.c.key, intents.c.claim, waits)
        .where(is_one_of_keys(dialect), IS_OWNERS)
        .order_by(intents.c.key)
        .with_for_update(of=intents)
    )


@built_once
def end(dialect: Dialect) -> Update:
    """Store a receipt in the row `of_key`; one at a time, since a planner may scan all rows to join them with many."""
    return (
        update(intents)
        .where(IS_KEY)
        .values(
            **{name: bindparam(f"new_{name}", type_=intents.c[name].type) for name in _RESULTS},
            due_at=case((bindparam("new_state", type_=Text) == WRITTEN, now(dialect)), else_=null()),
            expires_at=None,
        )
    )


async def postpone(connection: AsyncConnection, scope: Scope, owner: str, later: Sequence[Postponement]) -> set[str]:
    """Give claimed intents back; those that the owner no longer holds under the same claim are left as they are.

    What may be withdrawn is superseded where its level went meanwhile, since nobody is left who would withdraw it;
    returns the keys of these.
    """
    moment = (await connection.execute(select(now(connection.dialect)))).scalar_one()
    await connection.execute(
        give_back(),
        [
            {
                "of_scope": scope.number,
                "of_key": each.key,
                "by": owner,
                "under": each.claim,
                "to_state": "claimed" if each.is_doubtful else "pending",
                "at": moment + each.delay,
                "ended": moment,
                "made": each.attempts,
                "because": each.error,
            }
            for each in sorted(later, key=lambda each: each.key)  # locked in one order by all
        ],
    )
    keys = [each.key for each in later if not each.is_doubtful]
    return set((await run(connection, scope, withdraw_unwanted, of_keys=keys)).scalars()) if keys else set()


@built_once
def withdraw_unwanted(dialect: Dialect) -> ReturningUpdate[Any]:
    """Supersede the unclaimed rows among `of_keys` whose levels are gone."""
    return (
        update(intents)
        .where(is_one_of_keys(dialect), intents.c.state == PENDING, ~has_match(intents, levels, OF_LEVEL))
        .values(state="superseded")
        .returning(intents.c.key)
    )


@built_once
def give_back() -> Update:
    """Put off the row `of_key` that its owner holds under the claim."""
    given: dict[str, Any] = {"state": bindparam("to_state"), "attempts": bindparam("made")}
    given |= {
        "error": bindparam("because"),
        "due_at": bindparam("at", type_=Timestamp()),
        "expires_at": bindparam("ended", type_=Timestamp()),
    }
    return update(intents).where(IS_KEY, IS_OWNERS, IS_OF_CLAIM).values(**given, owner="")


async def take_unseen(
    connection: AsyncConnection, scope: Scope, *, limit: int, after: timedelta, most: timedelta
) -> list[UnseenWrite]:
    """Writes that the log has not shown for `after`; no two callers get the same one.

    They are given again, unless settled by then, when they are twice as old, but `after` from now at the earliest and
    `most` at the latest.
    """
    table, moment = intents.c, now(connection.dialect)
    unseen = (
        select(*(table[name] for name in _UNSEEN), table.decided_at, moment.label("now"))
        .where(
            table.scope == scope.number,
            is_unsettled(intents),
            table.state == WRITTEN,
            table.is_watched.is_(True),
            table.is_folded.is_(True),
            table.result_version > 0,
            table.due_at <= now(connection.dialect, -after),
            has_match(intents, levels, OF_LEVEL),  # else nothing waits for it
        )
        .order_by(table.due_at)
        .limit(limit)
        .with_for_update(skip_locked=True, of=intents)
    )
    rows = (await connection.execute(unseen)).mappings().all()
    writes = [UnseenWrite(**{name: row[name] for name in _UNSEEN}, age=row["now"] - row["decided_at"]) for row in rows]
    again = {each.key: rows[0]["now"] - after + min(max(each.age, after), most) for each in writes}
    values = [{"of_scope": scope.number, "of_key": key, "at": at} for key, at in again.items()]
    await write(connection, _look_again(), values)
    return writes


@built_once
def _look_again() -> Update:
    return update(intents).where(IS_KEY, intents.c.state == WRITTEN).values(due_at=bindparam("at", type_=Timestamp()))


async def unrelayed(connection: AsyncConnection, scope: Scope, limit: int) -> Sequence[Row[Any, Any]]:
    """Key and receipt of stored receipts that are not noted as being in the log."""
    are_meant = intents.c.scope == scope.number, text("receipt IS NOT NULL AND NOT is_relayed")
    query = select(intents.c.key, intents.c.receipt).where(*are_meant).limit(limit)
    return (await connection.execute(query)).all()


async def mark_relayed(connection: AsyncConnection, scope: Scope, keys: Collection[str]) -> None:
    """Note that the receipts are in the log."""
    await run(connection, scope, relayed, of_keys=keys)


@built_once
def relayed(dialect: Dialect) -> Update:
    """Note that the receipts of the rows `of_keys` are in the log, where that is not known yet.

    It waits for nobody: a fold that has locked a row notes that itself, and any other is relayed once more.
    """
    are_of_keys = one_of_named(dialect, intents.c.key, "of_keys")
    is_ours = locked(dialect, intents, are_of_keys, intents.c.is_relayed.is_(False), skip=True)
    return update(intents).where(is_ours).values(is_relayed=True)
