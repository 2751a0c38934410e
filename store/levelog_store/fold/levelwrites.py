"""How the fold and `levelog retry` change levels: wakeups, receipts, observations, levels of deleted parents."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from secrets import randbits
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Dialect,
    Select,
    Update,
    and_,
    bindparam,
    case,
    literal,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.connect.database import Database
from levelog_store.dialects import (
    built_once,
    insert_for,
    locked,
    now,
    row_of,
    there_is,
)
from levelog_store.owners.handlers import CHANGED_CODE
from levelog_store.rows import UNKNOWN, UNSETTLED, Scope, ViewParent
from levelog_store.tables import backfills, intents, levels, wakeups

ASKED_FOR: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Due time of levels that are to be tried again: it has come by every clock, also once a fold wakes them for itself.

A reconcile function is called for a time that has come although nothing has changed.
"""

_OF_ANY_BACKFILL: Final = and_(
    backfills.c.scope == levels.c.scope,
    backfills.c.name == levels.c.view,
    backfills.c.partition == levels.c.partition,
)
OF_BACKFILL: Final = and_(_OF_ANY_BACKFILL, backfills.c.kind == "view")
"""Joins a row of `levels` with what says that changed code has not decided on it, or not on all of its view."""
IS_OUTDATED: Final = backfills.c.name.is_not(None)
"""Condition that a row, joined so, is of the code before."""
AS_LEFT: Final[Mapping[str, ColumnElement[Any]]] = {
    **levels.c,
    **{
        name: case((~IS_OUTDATED, levels.c[name]), else_=null() if value is None else literal(value)).label(name)
        for name, value in {**UNKNOWN, "reason": CHANGED_CODE}.items()
    },
}
"""The columns of a row, joined so: nothing is known of one that is outdated."""


def levels_as_left(names: Iterable[str]) -> Select[Any]:
    """Columns of levels, where nothing is known of those that changed code has not decided on."""
    return select(*(AS_LEFT[name] for name in names)).outerjoin_from(levels, backfills, OF_BACKFILL)


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

    is_under_way = there_is(*of_level(intent), intent.state.in_(UNSETTLED))
    is_asked_for = or_(there_is(*of_level(wake)), there_is(_OF_ANY_BACKFILL))
    is_stuck = (
        level.scope == scope.number,
        level.status == "settling",
        level.position.is_(None),
        ~is_under_way,
        ~is_asked_for,
    )
    due_at = literal(ASKED_FOR, wake.due_at.type)
    return (await connection.execute(wake_stored(connection.dialect, *is_stuck, due_at=due_at))).rowcount


@built_once
def _hurry_writes(dialect: Dialect) -> Update:
    """Let writes of a level be sent that wait for a retry; who changes one at this moment decides when it is sent."""
    table = intents.c
    is_open = or_(table.state == "pending", table.state == "claimed")  # no IN for many rows at once
    of_level = table.view == bindparam("of_view"), table.parent == bindparam("of_parent")
    waits = locked(dialect, intents, *of_level, is_open, table.owner == "", table.due_at > now(dialect), skip=True)
    return update(intents).where(waits).values(due_at=now(dialect))


def _named(scope: Scope, levels_: Collection[ViewParent]) -> list[dict[str, Any]]:
    return [{"of_scope": scope.number, "of_view": view, "of_parent": parent} for view, parent in sorted(levels_)]


def new_generation() -> int:
    """What identifies requests for levels from all others, also from those that were forgotten with their parents.

    Drawn, not counted: a count would have to outlive the row.
    """
    return randbits(62)


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
