"""The outbox: intents are claimed by actuators, their receipts stored and handed to the log.

`pending` says that nothing was sent, or nothing that took effect, so that a processor may withdraw the intent.
`claimed` says that a request may have taken effect, also while nobody holds the claim: whoever claims it next has to
look at the target before writing. `due_at` is when an intent may be claimed, NULL for at once; for a claimed one it
is the end of the claim; for a written one, when to look at the target if the log has not shown it. All times are the
database's.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final

from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.actuate import outcomes as sql
from levelog_store.dialects import many
from levelog_store.rows import Scope


class ClaimedIntent(Struct, frozen=True, kw_only=True):
    """An intent that one actuator may act on until its claim ends."""

    key: str
    view: str
    parent: str
    parent_uid: str
    partition: int
    round: int
    verb: str
    target: str
    api_version: str
    target_uid: str
    target_version: int
    body: bytes
    sealed: bytes | None = None
    """The body as it is to be sent, encrypted, if `body` is redacted."""
    options: bytes
    attempts: int
    """Claims that came to something, this one included."""
    is_doubtful: bool
    """An earlier request may have taken effect: look at the target before writing."""


class StoredReceipt(Struct, frozen=True, kw_only=True):
    """What became of an intent, as its row keeps it."""

    key: str
    state: str
    error: str
    attempts: int
    result_uid: str
    result_version: int
    receipt: bytes
    """ReceiptNoted as JSON."""


class Postponement(Struct, frozen=True, kw_only=True):
    """An intent that its claimant gives back, to be claimed again after a delay."""

    key: str
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
    sighted_version: int | None
    """What the log tells of the last look; None: nothing yet."""
    age: timedelta
    """Since it was decided."""


class UnrelayedReceipt(Struct, frozen=True, kw_only=True):
    """A stored receipt that the log may not hold yet."""

    key: str
    receipt: bytes


LOOK_AFTER: Final = timedelta(seconds=30)
"""So long the log may take to show a write before somebody looks."""

_FIELDS: Final = ClaimedIntent.__struct_fields__[:-2]
_RESULTS: Final = StoredReceipt.__struct_fields__[1:]


async def claim(
    connection: AsyncConnection,
    scope: Scope,
    owner: str,
    *,
    limit: int,
    lease: timedelta,
    without: Collection[str] = (),
) -> list[ClaimedIntent]:
    """Claim intents that are due, at most one for each target, the earliest of it; no two callers get the same one.

    Intents of the API versions `without` are left where they are.

    The caller commits durably before it acts on them: a lost commit would be a write that nobody remembers.
    """
    dialect = connection.dialect
    values = {"scope": scope.number, "limit": limit} | ({"without": many(dialect, without)} if without else {})
    rows = (await connection.execute(sql.claimable(dialect, is_partial=bool(without)), values)).all()
    if rows:
        keys = many(dialect, [row.key for row in rows])
        await connection.execute(sql.take(dialect, lease), {"of_scope": scope.number, "of_keys": keys, "by": owner})
    return [
        ClaimedIntent(
            **dict(zip(_FIELDS, row, strict=False)), attempts=row.attempts + 1, is_doubtful=row.state == "claimed"
        )
        for row in rows
    ]


async def read_open(connection: AsyncConnection, scope: Scope, limit: int) -> list[ClaimedIntent]:
    """Intents that are to be sent, or may have been, in the order of the decisions; nothing is claimed."""
    rows = await connection.execute(sql.to_send(), {"of_scope": scope.number, "limit": limit})
    return [
        ClaimedIntent(
            **dict(zip(_FIELDS, row, strict=False)), attempts=row.attempts, is_doubtful=row.state == "claimed"
        )
        for row in rows
    ]


async def still_claimed(connection: AsyncConnection, scope: Scope, owner: str, keys: Collection[str]) -> set[str]:
    """Those of the intents that the owner may still act on."""
    dialect = connection.dialect
    values = {"of_scope": scope.number, "of_keys": many(dialect, keys), "by": owner}
    return set((await connection.execute(sql.held(dialect), values)).scalars())


async def keep(
    connection: AsyncConnection, scope: Scope, owner: str, keys: Collection[str], *, lease: timedelta
) -> None:
    """Let the claims of the intents last for another lease, as far as the owner still has them."""
    dialect = connection.dialect
    values = {"of_scope": scope.number, "of_keys": many(dialect, keys), "by": owner}
    await connection.execute(sql.keep(dialect, lease), values)


async def store_receipts(
    connection: AsyncConnection,
    scope: Scope,
    owner: str,
    receipts: Sequence[StoredReceipt],
    *,
    look_after: timedelta = LOOK_AFTER,
) -> set[str]:
    """Store what became of claimed intents; returns the keys of those that the owner still held.

    The others were claimed by another actuator meanwhile, which looks at their targets itself. Targets that the log has
    not shown `look_after` from now are `take_unseen`.
    """
    dialect = connection.dialect
    values = {"of_scope": scope.number, "of_keys": many(dialect, [each.key for each in receipts]), "by": owner}
    held = set((await connection.execute(sql.lock_held(dialect), values)).scalars())
    rows = [
        {"of_scope": scope.number, "of_key": each.key, **{f"new_{name}": getattr(each, name) for name in _RESULTS}}
        for each in receipts
        if each.key in held
    ]
    if rows:
        await connection.execute(sql.end(dialect, look_after), rows)
    return held


async def take_unseen(
    connection: AsyncConnection, scope: Scope, *, limit: int, after: timedelta, most: timedelta
) -> list[UnseenWrite]:
    """Writes whose targets are to be looked at now; no two callers get the same one.

    They are given again, unless settled by then, when they are twice as old, but `after` from now at the earliest and
    `most` at the latest.
    """
    found = await connection.execute(sql.unseen(connection.dialect), {"of_scope": scope.number, "limit": limit})
    rows = found.mappings().all()
    writes = [
        UnseenWrite(
            **{name: row[name] for name in sql.UNSEEN_COLUMNS if name != "decided_at"},
            age=row["now"] - row["decided_at"],
        )
        for row in rows
    ]
    if rows:
        moment = rows[0]["now"]
        again = [moment + min(max(write.age, after), most) for write in writes]
        await connection.execute(
            sql.look_again(),
            [
                {"of_scope": scope.number, "of_key": write.key, "at": at}
                for write, at in zip(writes, again, strict=True)
            ],
        )
    return writes


async def postpone(connection: AsyncConnection, scope: Scope, owner: str, later: Sequence[Postponement]) -> None:
    """Give claimed intents back; those that the owner no longer holds are left as they are."""
    moment = (await connection.execute(sql.moment(connection.dialect))).scalar_one()
    await connection.execute(
        sql.give_back(),
        [
            {
                "of_scope": scope.number,
                "of_key": each.key,
                "by": owner,
                "to_state": "claimed" if each.is_doubtful else "pending",
                "at": moment + each.delay,
                "ends": moment + each.delay if each.is_doubtful else None,
                "made": each.attempts,
                "because": each.error,
            }
            for each in later
        ],
    )


async def next_due(connection: AsyncConnection, scope: Scope) -> timedelta | None:
    """How long until the next intent that waits for its time may be claimed; None if none does."""
    row = (await connection.execute(sql.next_due(connection.dialect), {"of_scope": scope.number})).first()
    return None if row is None else row.due_at - row.now


async def end_claims(connection: AsyncConnection, scope: Scope) -> int:
    """End all claims at once, when it is certain that no other process is left to act on them; returns how many."""
    return (await connection.execute(sql.end_claims(connection.dialect), {"of_scope": scope.number})).rowcount


async def unrelayed(connection: AsyncConnection, scope: Scope, limit: int) -> list[UnrelayedReceipt]:
    """Stored receipts that are not noted as being in the log."""
    rows = await connection.execute(sql.unrelayed(), {"of_scope": scope.number, "limit": limit})
    return [UnrelayedReceipt(key=row.key, receipt=row.receipt) for row in rows]


async def mark_relayed(connection: AsyncConnection, scope: Scope, keys: Collection[str]) -> None:
    """Note that the receipts are in the log."""
    dialect = connection.dialect
    await connection.execute(sql.mark_relayed(dialect), {"of_scope": scope.number, "of_keys": many(dialect, keys)})
