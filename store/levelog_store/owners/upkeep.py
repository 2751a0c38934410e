"""Prunes what is older than the log and no longer needed, and has tables analyzed.

Rows to prune were caused by records that expired: decisions, except those in force where the log begins; finished
intents, except those of a level's last round and the last apply to each existing object; tombstones; versions of keys
without readers and values. A key without a row counts as one that never changed.
"""

from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Table,
    Text,
    and_,
    bindparam,
    case,
    delete,
    false,
    or_,
    select,
    text,
    true,
    tuple_,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.actuate.claims import OF_LEVEL
from levelog_store.connect.database import Database
from levelog_store.dialects import constant, has_match, locked, one_of_named, pairs, parameters, there_is
from levelog_store.rows import ENDED, Scope
from levelog_store.tables import (
    decisions,
    dependencies,
    index_entries,
    intents,
    key_versions,
    levels,
    objects,
    tombstones,
    wakeups,
)

Place = tuple[Any, ...]
"""Values of a row's key, without the scope."""

PAGE: Final = 1000
"""Rows of each table to delete in one transaction: few, so that no other transaction waits long for their locks."""

_MADE: Final = constant("settled"), constant("satisfied")
_APPLY: Final = constant("apply")

PRUNED: Final = (decisions, intents, tombstones, key_versions)


async def find_old(
    connection: AsyncConnection, scope: Scope, table: Table, first: int, *, after: Place | None, limit: int = PAGE
) -> tuple[list[Place], Place | None]:
    """Places of rows that are older than the log, which begins with record `first`, among the next `limit` in order.

    With the place `after` which the next page begins; None: there is none. However large the table, a page is read at
    once: who looked for the next old row would go through all that are not old in one statement.
    """
    columns = _place(table)
    begin = after or [column.type.python_type() for column in columns]  # "" or 0, before all that there are
    is_next = tuple_(*columns) > tuple_(*begin) if len(columns) > 1 else columns[0] > begin[0]
    is_old = case((_is_before(table, first), _is_left(table, first)), else_=false())  # with AND, SQLite looks at both
    query = select(*columns, is_old).where(table.c.scope == scope.number, is_next)
    rows = (await connection.execute(query.order_by(*columns).limit(limit))).all()
    last = tuple(rows[-1][:-1]) if len(rows) == limit else None
    return [tuple(place) for *place, is_one in rows if is_one], last


async def delete_old(connection: AsyncConnection, scope: Scope, table: Table, first: int, places: list[Place]) -> int:
    """Delete the rows at these places that are still older than the log; returns how many.

    Rows that others have locked are left for the next time: they may be of any partition, and it waits for nobody. The
    caller holds the lease of a partition (`leases.guard`) in the same transaction.
    """
    dialect, columns = connection.dialect, _place(table)
    if len(columns) == 1:
        wanted, given = one_of_named(dialect, columns[0], "values"), {"values": [place for (place,) in places]}
    else:
        among = pairs(dialect)
        wanted, given = tuple_(*columns).in_(select(among.c.first, among.c.second)), {"pairs": places}
    is_old = locked(dialect, table, wanted, _is_before(table, first), _is_left(table, first), skip=True)
    return (await connection.execute(delete(table).where(is_old), parameters(dialect, scope, given))).rowcount


def _place(table: Table) -> list[Column[Any]]:
    return [column for column in table.primary_key.columns if column.name != "scope"]


def _is_before(table: Table, first: int) -> ColumnElement[bool]:
    of_table = {decisions: "cause", intents: "cause", tombstones: "sequence", key_versions: "version"}
    return table.c[of_table[table]] < first


def _is_left(table: Table, first: int) -> ColumnElement[bool]:
    """It is not needed any more, if it is from before the log."""
    if table is decisions:
        return _is_replaced(first)
    if table is intents:
        return and_(_has_ended(), ~_is_of_last_round(), ~_is_last_apply())
    if table is tombstones:
        return true()
    return and_(*(~has_match(key_versions, by, ("index", "key")) for by in (dependencies, index_entries)))


def _is_replaced(first: int) -> ColumnElement[bool]:
    """When the log begins, another decision held already; or there is no such level now."""
    newer = decisions.alias("newer")
    is_newer = newer.c.ordinal > decisions.c.ordinal, newer.c.cause < first
    has_newer = has_match(decisions, newer, ("parent", "view"), *is_newer)
    return or_(has_newer, ~has_match(decisions, levels, ("view", "parent")))


def _has_ended() -> ColumnElement[bool]:
    """It is settled or will never be: nobody settles Events, nor what was decided for a parent that is gone."""
    has_level = has_match(intents, levels, OF_LEVEL)
    is_let_go = and_(intents.c.state == "written", intents.c.is_folded, or_(intents.c.verb == "event", ~has_level))
    return or_(intents.c.state.in_(ENDED), is_let_go)


def _is_of_last_round() -> ColumnElement[bool]:
    return and_(intents.c.verb != "event", has_match(intents, levels, (*OF_LEVEL, "round")))


def _is_last_apply() -> ColumnElement[bool]:
    """Later applies are compared with it."""
    newer = intents.alias("newer")
    is_newer = newer.c.verb == _APPLY, newer.c.state.in_(_MADE), newer.c.decided_at > intents.c.decided_at
    is_there = there_is(objects.c.scope == intents.c.scope, objects.c.object == intents.c.target)
    is_made = intents.c.verb == _APPLY, intents.c.state.in_(_MADE)
    return and_(*is_made, is_there, ~has_match(intents, newer, ("target",), *is_newer))


HOT: Final = frozenset(
    table.name for table in (dependencies, index_entries, intents, key_versions, levels, objects, tombstones, wakeups)
)
"""Tables that are looked up by many keys at once."""

GROWN: Final = 2
"""Times as large as when it was analyzed last."""
_BRIEFLY: Final = text("SET LOCAL default_statistics_target = 10")
"""3,000 rows of a table are looked at, in a fifth of the time that the 30,000 of autovacuum take: plans for any value
are made by little more than how many values differ."""


async def analyze_grown(database: Database) -> list[str]:
    """Analyze the hot tables that have rows for the first time, or have `GROWN`; returns these, sorted.

    Plans are made once for each connection, and anew after that. A table that somebody has locked, as a VACUUM does, is
    left for the next time. A user who does not own the tables gets warnings in the server's log and no statistics: then
    autovacuum makes them. SQLite needs none.
    """
    if not database.is_shared:
        return []
    async with database.transaction(durable=False) as connection:
        sizes = await connection.execute(
            text(
                "SELECT relname FROM pg_class WHERE oid IN (SELECT to_regclass(name) FROM unnest(:hot) AS name) "
                "AND pg_relation_size(oid) >= "
                "greatest(1, :grown * relpages::bigint * current_setting('block_size')::integer)"
            ).bindparams(bindparam("hot", type_=ARRAY(Text))),
            {"grown": GROWN, "hot": [*HOT]},
        )
        grown = sorted(sizes.scalars())
        if grown:
            await connection.execute(_BRIEFLY)
        for name in grown:
            await connection.exec_driver_sql(f"ANALYZE (SKIP_LOCKED) {name}")
    return grown
