"""The outbox, the table `intents`: deciders and senders claim intents here, and keep their claims.

Each function runs in the transaction of its caller, who commits it before anything is sent, so that no two actuators
send one intent. Nothing here sends, or says what came of an intent: that is `outcomes.py`.

`pending`: a processor may withdraw it, and until then it is claimed again: nothing took effect, or it is a call that
was tried often enough. `claimed`: held, or given back in doubt, without an owner: a request may have taken effect, and
the next claimant reads the target before it writes. `due_at` is when an intent may be claimed, NULL for at once; while
somebody holds it, the end of the claim; for a written one, since when the log should show it. `expires_at` is the end
of the claim, or when the intent was given back. All times are the database's.

States are literals in statements, not parameters: only from literals can a planner prove that a partial index holds all
rows in question.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from secrets import randbits
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Dialect,
    Executable,
    FromClause,
    Integer,
    Select,
    Text,
    Update,
    and_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate
from sqlalchemy.sql.selectable import NamedFromClause

from levelog_base.wire.objects import ObjectKey, effect_of
from levelog_store.decide.decisions import Sendable
from levelog_store.dialects import (
    OF_SCOPE,
    built_once,
    constant,
    insert_for,
    locked,
    mappings,
    named,
    namespace_column,
    now,
    one_of_named,
    run,
    there_is,
)
from levelog_store.rows import Scope, in_turn, namespace_of
from levelog_store.tables import intents

PENDING: Final = constant("pending")
CLAIMED: Final = constant("claimed")
WRITTEN: Final = constant("written")
CALL: Final = constant("call")


def is_unsettled(table: FromClause) -> ColumnElement[bool]:
    """Condition of the index of intents that are open, or of which the log has not shown what they wrote."""
    return table.c.state.in_((PENDING, CLAIMED, WRITTEN))


OfCalls: TypeAlias = Literal["any", "others", "these"]
"""What is claimed: writes and all calls, writes and the calls of other effects, or the calls of these effects alone."""

IS_IN_SCOPE: Final = intents.c.scope == OF_SCOPE
IS_OWNERS: Final = and_(intents.c.state == CLAIMED, intents.c.owner == bindparam("by"))
IS_OF_CLAIM: Final = intents.c.claim == bindparam("under", type_=BigInteger)
"""An owner may have lost a claim and have another one since."""
OF_LEVEL: Final = ("view", "parent", "parent_uid")
"""Columns of an intent that name the level it was decided for."""
IS_KEY: Final = and_(IS_IN_SCOPE, intents.c.key == bindparam("of_key"))


def is_one_of_keys(dialect: Dialect) -> ColumnElement[bool]:
    """Condition that a row of `OF_SCOPE` is one of the parameter `of_keys`."""
    return named(dialect, intents.c.key, "of_keys")


class ClaimedIntent(Sendable, frozen=True, kw_only=True):
    """An open intent, claimed or not; if it is, one actuator may act on it until the claim ends."""

    view: str
    parent: str
    parent_uid: str
    partition: int
    decided_at: datetime
    attempts: int
    """This claim and those before it, but for those that were given back uncounted."""
    claim: int
    """Its number, which no other claim of the intent has."""
    is_doubtful: bool
    """An earlier request may have taken effect: look at the target before writing."""
    progress: bytes | None = None
    """What earlier claims have kept, as JSON."""

    @property
    def effect(self) -> str:
        """The effect that a call is of, `operator/effect`."""
        return effect_of(self.view, ObjectKey.parse(self.target))


@runtime_checkable
class Claimant(Protocol):
    """Who carries intents out in the process that decides on them, and can have them as they are decided."""

    owner: str
    """Name by which its claims are known."""
    lease: timedelta
    """How long its claims last."""

    def choose(self, intents: Sequence[Sendable]) -> Sequence[str]:
        """Keys of those that it would begin at once."""
        ...

    def begin(self, claimed: Sequence[ClaimedIntent], since: float) -> None:
        """Carry out what was durably claimed for it; the claims count from `since` on the clock `elapsed`.

        At minus infinity it is unknown whether the claims were committed.
        """
        ...


_SET_BY_CLAIM: Final = ("state", "owner", "claim", "expires_at", "due_at", "attempts")
_COLUMNS: Final = tuple(name for name in ClaimedIntent.__struct_fields__ if name in intents.c)


def new_claim() -> int:
    """The number of a claim; drawn, not counted, since a count would have to outlive the row."""
    return randbits(62)


def _claimed(row: Mapping[str, Any], **values: Any) -> ClaimedIntent:
    return ClaimedIntent(**{name: row[name] for name in _COLUMNS} | values, is_doubtful=row["state"] == "claimed")


async def claim(
    connection: AsyncConnection,
    scope: Scope,
    owner: str,
    *,
    limit: int,
    lease: timedelta,
    without: Collection[str] = (),
    without_calls: Collection[str] = (),
) -> list[ClaimedIntent]:
    """Claim due intents, at most one for each target, the one whose turn it is; no two callers get the same.

    If there are more than the `limit`, it claims those of each namespace in turn.

    It skips intents of the API versions `without`, and calls of the effects `without_calls` (`operator/effect`).

    The caller commits durably before it acts on them: if the commit were lost, no row would remember the write.
    """
    values = {"without": without} if without else {}
    values |= {"calls": without_calls} if without_calls else {}
    kind: OfCalls = "others" if without_calls else "any"
    found = await _found(connection, scope, kind, bool(without), limit=limit, **values)
    return await _take(connection, scope, owner, found, lease)


async def claim_calls(
    connection: AsyncConnection, scope: Scope, owner: str, rooms: Mapping[str, int], *, lease: timedelta
) -> tuple[list[ClaimedIntent], bool]:
    """Claim due calls of the effects in `rooms` (`operator/effect`), at most the given number of each.

    The caller commits durably, as for `claim`. Returns also whether more may be due of an effect that has room.
    """
    limit = sum(rooms.values())
    found = await _found(connection, scope, "these", limit=limit, calls=rooms)
    left, rows = dict(rooms), list[dict[str, Any]]()
    for row in found:
        effect = effect_of(row["view"], ObjectKey.parse(row["target"]))
        if left[effect]:
            left[effect] -= 1
            rows.append(row)
    return await _take(connection, scope, owner, rows, lease), len(found) == limit and any(left.values())


async def _found(
    connection: AsyncConnection, scope: Scope, kind: OfCalls, leaves_out: bool = False, *, limit: int, **values: Any
) -> list[dict[str, Any]]:
    """Rows to claim, earliest first; if there are more than the limit, those of each namespace in turn."""
    found = mappings(await run(connection, scope, claimable, kind, leaves_out, limit=limit, **values))
    if len(found) < limit:
        return found
    values |= {"limit": limit, "namespaces": {namespace_of(row["parent"]) for row in found}}
    others = mappings(await run(connection, scope, claimable, kind, leaves_out, True, **values))
    return in_turn([*found, *others], itemgetter("parent"))[:limit]


async def _take(
    connection: AsyncConnection, scope: Scope, owner: str, rows: Sequence[Mapping[str, Any]], lease: timedelta
) -> list[ClaimedIntent]:
    number = new_claim()
    if rows:
        keys = [row["key"] for row in rows]
        await run(connection, scope, taken, lease, of_keys=keys, by=owner, number=number)
    return [_claimed(row, attempts=row["attempts"] + 1, claim=number) for row in rows]


class Claiming(Struct, frozen=True):
    """A claim of intents that are written for the first time."""

    keys: Collection[str]
    """Keys of the wanted intents."""
    owner: str
    lease: timedelta
    number: int
    """Number of the claim, from `new_claim`."""


async def insert_claimed(
    connection: AsyncConnection, scope: Scope, rows: Sequence[Mapping[str, Any]], claiming: Claiming
) -> set[str]:
    """Insert intents as claimed, as far as nothing else waits for their targets; returns the keys of these.

    The caller writes the others as pending, and commits durably before it acts on the claims.
    """
    if not rows:
        return set()
    by = {"of_scope": scope.number, "by": claiming.owner, "number": claiming.number}
    names = tuple(name for name in rows[0] if name not in _SET_BY_CLAIM)
    # a unique index has inserts for one target wait for each other: all go in order of targets, then as decided
    given = [{f"new_{name}": row[name] for name in names} | by for row in sorted(rows, key=itemgetter("target"))]
    is_single = len(rows) == 1
    inserted = await connection.execute(insert_free(connection.dialect, claiming.lease, names, is_single), given)
    if not is_single:
        keys = [row["key"] for row in rows]
        inserted = await run(connection, scope, _of_claim, of_keys=keys, under=claiming.number)
    return set(inserted.scalars())


@built_once
def insert_free(dialect: Dialect, lease: timedelta, names: tuple[str, ...], is_answered: bool) -> Executable:
    """Insert the row `new_…` as claimed, unless it is there or its target has another open one; gives its key."""
    values = _claim_values(dialect, lease) | {"attempts": literal_column("1", Integer)}
    given = [bindparam(f"new_{name}", type_=intents.c[name].type) for name in names]
    others = [intents.c.scope == OF_SCOPE, intents.c.target == bindparam("new_target", type_=Text)]
    is_free = ~select(literal_column("1")).where(*others, intents.c.state.in_((PENDING, CLAIMED))).exists()
    row = select(*given, *values.values()).where(is_free)
    # of two at once for a target, the one that commits later is not inserted: the caller writes it as pending
    statement = insert_for(dialect, intents).from_select([*names, *values], row).on_conflict_do_nothing()
    return statement.returning(intents.c.key) if is_answered else statement


@built_once
def _of_claim(dialect: Dialect) -> Select[Any]:
    return select(intents.c.key).where(is_one_of_keys(dialect), IS_OF_CLAIM)


@built_once
def claimable(
    dialect: Dialect, calls: OfCalls = "any", leaves_out: bool = False, is_of_others: bool = False
) -> Select[Any]:
    """Up to `limit` rows that may be claimed, locked where there are row locks; rows locked by others are left out.

    Retries and ended claims first, then what is new; of each target the earliest only. `calls` is about the effects in
    the parameter of that name. With `leaves_out`, API versions in `without` are passed by, and with `is_of_others` the
    parents in `namespaces`: neither condition is there without need, since planners expect few rows for it, and sort
    them.
    """

    def conditions(table: NamedFromClause[Any]) -> Iterator[ColumnElement[bool]]:
        if leaves_out:
            yield ~one_of_named(dialect, table.c.api_version, "without")
        if calls != "any":
            of_calls = and_(table.c.verb == CALL, one_of_named(dialect, effect_column(dialect, table), "calls"))
            yield of_calls if calls == "these" else ~of_calls
        if is_of_others:
            yield ~one_of_named(dialect, namespace_column(dialect, table.c.parent), "namespaces")

    def first(is_due: Callable[[NamedFromClause[Any]], ColumnElement[bool]]) -> Select[Any]:
        return _first_of_targets(lambda table: and_(is_due(table), *conditions(table)))

    due = first(lambda table: table.c.due_at <= now(dialect)).cte("due")
    fresh = first(lambda table: table.c.due_at.is_(None)).cte("fresh")
    return select(select(due).union_all(select(fresh)).subquery("found")).limit(bindparam("limit", type_=Integer))


def effect_column(dialect: Dialect, table: NamedFromClause[Any]) -> ColumnElement[str]:
    """The effect that a call is of, as `effect_of` has it."""
    place = func.strpos if dialect.name == "postgresql" else func.instr
    operator = func.substr(table.c.view, 1, place(table.c.view, "/"), type_=Text)
    effect: ColumnElement[str] = operator + table.c.kind
    return effect


def _first_of_targets(is_wanted: Callable[[NamedFromClause[Any]], ColumnElement[bool]]) -> Select[Any]:
    candidate = intents.alias("candidate")
    return (
        select(*(candidate.c[name] for name in (*_COLUMNS, "state")))
        .where(candidate.c.scope == OF_SCOPE, candidate.c.state.in_((PENDING, CLAIMED)), is_wanted(candidate))
        .where(~_is_behind(candidate))
        .order_by(candidate.c.due_at, candidate.c.decided_at)
        .limit(bindparam("limit", type_=Integer))
        .with_for_update(skip_locked=True, of=candidate)
    )


def _is_behind(candidate: NamedFromClause[Any]) -> ColumnElement[bool]:
    """Condition that another open row of the same target goes first."""
    other = intents.alias("other")
    place = [(table.c.decided_at, table.c.round, table.c.ordinal, table.c.key) for table in (other, candidate)]
    # What was claimed once may be on its way and goes first; then the order of the decisions.
    is_ahead = or_(
        and_(other.c.state == CLAIMED, candidate.c.state == PENDING),
        and_(other.c.state == candidate.c.state, tuple_(*place[0]) < tuple_(*place[1])),
    )
    is_open = is_unsettled(other), other.c.state != WRITTEN
    return there_is(other.c.scope == candidate.c.scope, other.c.target == candidate.c.target, *is_open, is_ahead)


@built_once
def taken(dialect: Dialect, lease: timedelta) -> Update:
    """Claim the rows `of_keys`."""
    return update(intents).where(is_one_of_keys(dialect)).values(_claim_values(dialect, lease))


def _claim_values(dialect: Dialect, lease: timedelta) -> dict[str, Any]:
    """What claiming makes of a row."""
    ends = now(dialect, lease)
    claim = CLAIMED, bindparam("by", type_=Text), bindparam("number", type_=BigInteger)
    return dict(zip(_SET_BY_CLAIM, (*claim, ends, ends, intents.c.attempts + 1), strict=True))


async def read_open(connection: AsyncConnection, scope: Scope, limit: int | None = None) -> list[ClaimedIntent]:
    """Intents that are to be sent, or may have been, in the order of the decisions; nothing is claimed."""
    table = intents.c
    are_open = table.scope == scope.number, table.state.in_((PENDING, CLAIMED))
    query = select(*(table[name] for name in (*_COLUMNS, "state"))).where(*are_open).limit(limit)
    rows = await connection.execute(query.order_by(table.decided_at, table.round, table.ordinal, table.key))
    return [_claimed(row) for row in mappings(rows)]


async def still_claimed(connection: AsyncConnection, scope: Scope, owner: str, keys: Collection[str]) -> set[str]:
    """The intents that the owner may still act on."""
    return set((await run(connection, scope, claimed_by, of_keys=keys, by=owner)).scalars())


@built_once
def claimed_by(dialect: Dialect) -> Select[Any]:
    """Which of the rows `of_keys` their owner holds."""
    is_current = intents.c.expires_at > now(dialect)
    return select(intents.c.key).where(is_one_of_keys(dialect), IS_OWNERS, is_current)


async def keep(
    connection: AsyncConnection, scope: Scope, owner: str, keys: Collection[str], *, lease: timedelta
) -> set[str]:
    """Let the claims of the intents last for another lease, as far as the owner still has them; returns these."""
    return set((await run(connection, scope, _keep, lease, of_keys=keys, by=owner)).scalars())


@built_once
def _keep(dialect: Dialect, lease: timedelta) -> ReturningUpdate[Any]:
    ends = now(dialect, lease)
    is_ours = locked(dialect, intents, one_of_named(dialect, intents.c.key, "of_keys"), IS_OWNERS)
    return update(intents).where(is_ours).values(expires_at=ends, due_at=ends).returning(intents.c.key)


async def next_due(connection: AsyncConnection, scope: Scope) -> tuple[timedelta | None, datetime]:
    """How long until the next intent that waits for its time may be claimed, None if none does; and the time now."""
    due_at, at = (await run(connection, scope, _next_due)).one()
    return None if due_at is None else due_at - at, at


@built_once
def _next_due(dialect: Dialect) -> Select[Any, datetime]:
    """When the next row is due that is not yet, and the database's time."""
    table = intents.c
    waits = IS_IN_SCOPE, table.state.in_((PENDING, CLAIMED)), table.due_at > now(dialect)
    first = select(table.due_at).where(*waits).order_by(table.due_at).limit(1)
    return select(first.scalar_subquery(), now(dialect))


async def end_claims(connection: AsyncConnection, scope: Scope, *conditions: ColumnElement[bool]) -> int:
    """End the claims that meet the conditions; nobody may be acting on them any more. Returns how many."""
    table, moment = intents.c, now(connection.dialect)
    are_held = locked(connection.dialect, intents, table.state == CLAIMED, table.owner != "", *conditions)
    ended = update(intents).where(are_held).values(due_at=moment, expires_at=moment, owner="")
    return (await connection.execute(ended, {"of_scope": scope.number})).rowcount
