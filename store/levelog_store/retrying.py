"""Trying levels again at once that wait, or have given up, by a wakeup whose time has come."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.clauses import insert_for, row_of
from levelog_store.clock import now
from levelog_store.rows import ViewParent
from levelog_store.tables import intents, levels, wakeups

RETRIABLE: Final = ("failed", "blocked", "drifting")
"""Statuses of levels that there is something to try again of; of one that is settling, if writes of it wait."""


async def retry_levels(connection: AsyncConnection, scope: int, of: Sequence[ViewParent]) -> None:
    """Let the levels be evaluated and reconciled once more, and their writes that wait for an attempt be sent, at once.

    To be committed by anybody, beside the processes of the application: a wakeup is all that it asks of them.
    """
    if not of:
        return
    dialect = connection.dialect
    named = [{"of_scope": scope, "of_view": view, "of_parent": parent} for view, parent in sorted(of)]
    level, wake = levels.c, wakeups.c
    source = select(
        level.scope, level.view, level.parent, level.partition, level.cause, literal(1), now(dialect)
    ).where(row_of(levels, "view", "parent"))
    columns = ("scope", "view", "parent", "partition", "cause", "generation", "due_at")
    statement = insert_for(dialect, wakeups).from_select(columns, source)
    # With a time that has come: so a reconcile function is called although nothing has changed.
    statement = statement.on_conflict_do_update(
        index_elements=[wake.scope, wake.view, wake.parent],
        set_={"generation": wake.generation + 1, "due_at": statement.excluded.due_at},
    )
    await connection.execute(statement, named)
    table = intents.c
    waiting: dict[str, Any] = {"due_at": now(dialect)}
    await connection.execute(
        update(intents)
        .where(
            row_of(intents, "view", "parent"),
            or_(table.state == "pending", table.state == "claimed"),  # no IN for many rows at once
            table.owner == "",
            table.due_at > now(dialect),
        )
        .values(**waiting),
        named,
    )
