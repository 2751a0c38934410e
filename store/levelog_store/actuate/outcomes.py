"""The statements of the outbox, each built once: to build one takes longer than to run it.

States stand in them as literals, not as parameters: only from literals can a planner prove that a partial index holds
all rows in question.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Dialect,
    Integer,
    Select,
    Text,
    Update,
    and_,
    bindparam,
    case,
    literal_column,
    null,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.sql.selectable import NamedFromClause

from levelog_store.dialects import OF_SCOPE, Timestamp, built_once, now, one_of_named
from levelog_store.tables import intents, levels

_PENDING: Final = literal_column("'pending'", Text)
_CLAIMED: Final = literal_column("'claimed'", Text)
_WRITTEN: Final = literal_column("'written'", Text)
_OPEN: Final = (_PENDING, _CLAIMED)

CLAIMED_COLUMNS: Final = (
    "key",
    "view",
    "parent",
    "parent_uid",
    "partition",
    "round",
    "verb",
    "target",
    "api_version",
    "target_uid",
    "target_version",
    "body",
    "sealed",
    "options",
    "attempts",
    "state",
)


UNSEEN_COLUMNS: Final = (
    "key",
    "view",
    "parent",
    "parent_uid",
    "target",
    "api_version",
    "result_version",
    "sighted_version",
    "decided_at",
)


def _is_one_of(dialect: Dialect) -> ColumnElement[bool]:
    return one_of_named(dialect, intents.c.key, "of_keys")


_is_in_scope: Final = intents.c.scope == OF_SCOPE
_is_held: Final = and_(intents.c.state == _CLAIMED, intents.c.owner == bindparam("by"))


@lru_cache(maxsize=4)
def claimable(dialect: Dialect, *, is_partial: bool = False) -> Select[Any]:
    """Up to `limit` rows that may be claimed, locked where there are row locks; rows locked by others are left out.

    Retries and ended claims first, then what is new; of each target the earliest only. A partial one passes by the API
    versions `without`; the other has no such condition, for which planners expect few rows and sort them.
    """

    def first(is_due: Callable[[NamedFromClause[Any]], ColumnElement[bool]]) -> Select[Any]:
        return _first_of_targets(
            lambda table: (
                is_due(table) & ~one_of_named(dialect, table.c.api_version, "without") if is_partial else is_due(table)
            )
        )

    due = first(lambda table: table.c.due_at <= now(dialect)).cte("due")
    fresh = first(lambda table: table.c.due_at.is_(None)).cte("fresh")
    return select(select(due).union_all(select(fresh)).subquery("found")).limit(bindparam("limit", type_=Integer))


def _first_of_targets(is_wanted: Callable[[NamedFromClause[Any]], ColumnElement[bool]]) -> Select[Any]:
    mine, other = intents.alias("mine"), intents.alias("other")
    place = [(table.c.decided_at, table.c.round, table.c.ordinal, table.c.key) for table in (other, mine)]
    # What was claimed once may be on its way and goes first; then the order of the decisions.
    is_ahead = or_(
        and_(other.c.state == _CLAIMED, mine.c.state == _PENDING),
        and_(other.c.state == mine.c.state, tuple_(*place[0]) < tuple_(*place[1])),
    )
    is_blocked = (
        select(literal_column("1"))
        .where(
            other.c.scope == mine.c.scope,
            other.c.target == mine.c.target,
            other.c.state.in_((*_OPEN, _WRITTEN)),
            other.c.state != _WRITTEN,
            is_ahead,
        )
        .offset(0)  # else PostgreSQL may join all open intents with each other: it looks up each target on its own so
        .exists()
    )
    return (
        select(*(mine.c[name] for name in CLAIMED_COLUMNS))
        .where(mine.c.scope == bindparam("scope"), mine.c.state.in_(_OPEN), is_wanted(mine), ~is_blocked)
        .order_by(mine.c.due_at)
        .limit(bindparam("limit", type_=Integer))
        .with_for_update(skip_locked=True, of=mine)
    )


@lru_cache(maxsize=1)
def to_send() -> Select[Any]:
    """Up to `limit` rows that are open, in the order of the decisions."""
    table = intents.c
    return (
        select(*(table[name] for name in CLAIMED_COLUMNS))
        .where(_is_in_scope, table.state.in_(_OPEN))
        .order_by(table.decided_at, table.round, table.ordinal, table.key)
        .limit(bindparam("limit", type_=Integer))
    )


@lru_cache(maxsize=16)
def take(dialect: Dialect, lease: timedelta) -> Update:
    """Claim the rows `of_keys`."""
    ends = now(dialect, lease)
    return (
        update(intents)
        .where(_is_in_scope, _is_one_of(dialect))
        .values(state="claimed", owner=bindparam("by"), expires_at=ends, due_at=ends, attempts=intents.c.attempts + 1)
    )


@lru_cache(maxsize=16)
def keep(dialect: Dialect, lease: timedelta) -> Update:
    """Let the claims of the rows `of_keys` that their owner holds last longer."""
    ends = now(dialect, lease)
    return update(intents).where(_is_in_scope, _is_one_of(dialect), _is_held).values(expires_at=ends, due_at=ends)


@built_once
def held(dialect: Dialect) -> Select[Any]:
    """Which of the rows `of_keys` their owner holds."""
    is_current = intents.c.expires_at > now(dialect)
    return select(intents.c.key).where(_is_in_scope, _is_one_of(dialect), _is_held, is_current)


@built_once
def lock_held(dialect: Dialect) -> Select[Any]:
    """Which of the rows `of_keys` their owner holds, also if the claim has ended; locked where there are row locks."""
    return select(intents.c.key).where(_is_in_scope, _is_one_of(dialect), _is_held).with_for_update()


@lru_cache(maxsize=16)
def end(dialect: Dialect, look_after: timedelta) -> Update:
    """Store a receipt in the row `of_key`; one at a time, since a planner may scan all rows to join them with many.

    What is written is to be looked at after a while, unless the log has shown it by then.
    """
    names = ("state", "error", "attempts", "result_uid", "result_version", "receipt")
    return (
        update(intents)
        .where(_is_in_scope, intents.c.key == bindparam("of_key"))
        .values(
            **{name: bindparam(f"new_{name}", type_=intents.c[name].type) for name in names},
            is_relayed=False,
            due_at=case((bindparam("new_state", type_=Text) == _WRITTEN, now(dialect, look_after)), else_=null()),
            expires_at=None,
        )
    )


@built_once
def unseen(dialect: Dialect) -> Select[Any]:
    """Up to `limit` rows whose writes the log should have shown by now, locked where there are row locks.

    Those of levels that are gone are left out: nobody waits for them.
    """
    table, level = intents.c, levels.c
    has_level = (
        select(literal_column("1"))
        .where(
            level.scope == table.scope,
            level.view == table.view,
            level.parent == table.parent,
            level.parent_uid == table.parent_uid,
        )
        .exists()
    )
    return (
        select(*(table[name] for name in UNSEEN_COLUMNS), now(dialect).label("now"))
        .where(
            _is_in_scope,
            table.state.in_((*_OPEN, _WRITTEN)),  # the condition of the index
            table.state == _WRITTEN,
            table.is_watched.is_(True),
            table.is_folded.is_(True),
            table.result_version > 0,
            table.due_at <= now(dialect),
            has_level,
        )
        .order_by(table.due_at)
        .limit(bindparam("limit", type_=Integer))
        .with_for_update(skip_locked=True, of=intents)
    )


@lru_cache(maxsize=1)
def look_again() -> Update:
    """Put the next look at the target of the row `of_key` off to a time."""
    return (
        update(intents)
        .where(_is_in_scope, intents.c.key == bindparam("of_key"), intents.c.state == _WRITTEN)
        .values(due_at=bindparam("at", type_=Timestamp()))
    )


@built_once
def moment(dialect: Dialect) -> Select[datetime]:
    """The database's time."""
    return select(now(dialect))


@lru_cache(maxsize=1)
def give_back() -> Update:
    """Put off the row `of_key` that its owner holds."""
    return (
        update(intents)
        .where(_is_in_scope, intents.c.key == bindparam("of_key"), _is_held)
        .values(
            state=bindparam("to_state"),
            owner="",
            due_at=bindparam("at", type_=Timestamp()),
            expires_at=bindparam("ends", type_=Timestamp()),
            attempts=bindparam("made"),
            error=bindparam("because"),
        )
    )


@built_once
def next_due(dialect: Dialect) -> Select[Any, datetime]:
    """When the next row is due that is not yet, and the database's time."""
    table = intents.c
    return (
        select(table.due_at, now(dialect).label("now"))
        .where(_is_in_scope, table.state.in_(_OPEN), table.due_at > now(dialect))
        .order_by(table.due_at)
        .limit(1)
    )


@built_once
def end_claims(dialect: Dialect) -> Update:
    """End the claims of all owners."""
    table = intents.c
    return (
        update(intents)
        .where(_is_in_scope, table.state == _CLAIMED, table.owner != "")
        .values(due_at=now(dialect), expires_at=now(dialect), owner="")
    )


@lru_cache(maxsize=1)
def unrelayed() -> Select[Any, Any]:
    """Key and receipt of up to `limit` rows whose receipt is not noted as being in the log."""
    return (
        select(intents.c.key, intents.c.receipt)
        .where(_is_in_scope, text("receipt IS NOT NULL AND NOT is_relayed"))
        .limit(bindparam("limit", type_=Integer))
    )


@built_once
def mark_relayed(dialect: Dialect) -> Update:
    """Note that the receipts of the rows `of_keys` are in the log."""
    return update(intents).where(_is_in_scope, _is_one_of(dialect)).values(is_relayed=True)
