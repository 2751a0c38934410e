"""Levels as changed code has left them, and wakeups that others than their processors ask for, as `levelog retry`."""

from collections.abc import Collection, Iterable, Mapping, Sequence
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

from levelog_store.actuate.claims import PENDING, is_one_of_keys
from levelog_store.connect.database import Database
from levelog_store.dialects import built_once, insert_for, locked, now, row_of, run, there_is
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
    named = [{"of_scope": scope.number, "of_view": view, "of_parent": parent} for view, parent in sorted(of)]
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


async def read_waiting(connection: AsyncConnection, scope: Scope, keys: Collection[str]) -> Sequence[ViewParent]:
    """Levels that wait because these intents could not be withdrawn, as they can be now."""
    return [(row.view, row.parent) for row in await run(connection, scope, _waiting, of_keys=keys)]


@built_once
def _waiting(dialect: Dialect) -> Select[str, str]:
    """Levels of the unclaimed rows among `of_keys` whose wakeups wait for their time."""
    table = wakeups.c
    of_level = [table[name] == intents.c[name] for name in ("scope", "view", "parent")]
    is_waiting = (is_one_of_keys(dialect), intents.c.state == PENDING, table.due_at > now(dialect))
    return select(table.view, table.parent).where(*of_level, *is_waiting).distinct()


async def hasten(connection: AsyncConnection, scope: Scope, level: ViewParent) -> None:
    """Make a level due that waits for its time.

    Call it in a transaction of its own: processors lock wakeups in an order that nobody else can keep to.
    """
    await run(connection, scope, _hastened, of_view=level[0], of_parent=level[1])


@built_once
def _hastened(dialect: Dialect) -> Update:
    is_waiting = row_of(wakeups, "view", "parent"), wakeups.c.due_at > now(dialect)
    return update(wakeups).where(*is_waiting).values(due_at=now(dialect))


def wake_stored(
    dialect: Dialect, *conditions: ColumnElement[bool], due_at: ColumnElement[Any]
) -> postgresql.Insert | sqlite.Insert:
    """Ask once more for the levels that are rows and meet the conditions, with the cause that they have."""
    columns = ("scope", "view", "parent", "partition", "cause")
    generation = literal(randbits(62), BigInteger)  # drawn, not counted: a count would have to outlive the row
    source = select(*(levels.c[name] for name in columns), generation, due_at)
    source = source.where(*conditions).order_by(levels.c.view, levels.c.parent)
    statement = insert_for(dialect, wakeups).from_select([*columns, "generation", "due_at"], source)
    return statement.on_conflict_do_update(
        index_elements=list(wakeups.primary_key),
        set_={name: statement.excluded[name] for name in ("generation", "due_at")},
    )
