"""Deleting what is older than the log and that nothing needs any more, and statistics to plan by.

What goes has its cause in records that expired: decisions, but those that held when it begins; intents that came to an
end, but those of a level's last round and the last apply to each object that is there; marks of deleted objects;
versions of keys that nobody reads and nothing has. A key without a row is as one that never changed.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Table, and_, delete, exists, or_, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.connect.database import Database
from levelog_store.rows import Scope
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

PAGE: Final = 1000
"""Rows of each table that are deleted in one transaction: few enough that nobody waits long for their locks."""

_ENDED: Final = ("settled", "satisfied", "failed", "superseded")
_MADE: Final = ("settled", "satisfied")


async def prune(connection: AsyncConnection, scope: Scope, first: int, *, limit: int = PAGE) -> dict[str, int]:
    """Delete up to `limit` rows of each table that are older than the log, which begins with record `first`.

    Returns how many, by table. The caller holds the lease of a partition (`leases.guard`) in the same transaction.
    """
    conditions = {
        decisions: and_(decisions.c.cause < first, _is_replaced(first)),
        intents: and_(intents.c.cause < first, _has_ended(), ~_is_of_last_round(), ~_is_last_apply()),
        tombstones: tombstones.c.sequence < first,
        key_versions: and_(key_versions.c.version < first, ~_has_readers(), ~_has_entries()),
    }
    deleted: dict[str, int] = {}
    for table, condition in conditions.items():
        keys = [column for column in table.primary_key.columns if column.name != "scope"]
        found = select(*keys).where(table.c.scope == scope.number, condition).limit(limit)
        gone = await connection.execute(delete(table).where(table.c.scope == scope.number, _in(keys, found)))
        deleted[table.name] = gone.rowcount
    return deleted


def _in(keys: Sequence[ColumnElement[Any]], found: Any) -> ColumnElement[bool]:
    return keys[0].in_(found) if len(keys) == 1 else tuple_(*keys).in_(found)


def _same(one: Table, other: Any, names: Iterable[str]) -> ColumnElement[bool]:
    return and_(*(other.c[name] == one.c[name] for name in ("scope", *names)))


def _is_replaced(first: int) -> ColumnElement[bool]:
    """When the log begins, another decision held already; or there is no such level now."""
    newer = decisions.alias("newer")
    is_newer = and_(
        _same(decisions, newer, ("parent", "view")), newer.c.ordinal > decisions.c.ordinal, newer.c.cause < first
    )
    return or_(exists().where(is_newer), ~exists().where(_same(decisions, levels, ("view", "parent"))))


def _has_ended() -> ColumnElement[bool]:
    """It is settled or will never be: nobody settles Events, nor what was decided for a parent that is gone."""
    has_level = exists().where(_same(intents, levels, ("view", "parent", "parent_uid")))
    is_let_go = and_(intents.c.state == "written", intents.c.is_folded, or_(intents.c.verb == "event", ~has_level))
    return or_(intents.c.state.in_(_ENDED), is_let_go)


def _is_of_last_round() -> ColumnElement[bool]:
    return and_(
        intents.c.verb != "event", exists().where(_same(intents, levels, ("view", "parent", "parent_uid", "round")))
    )


def _is_last_apply() -> ColumnElement[bool]:
    """Later applies are compared with it."""
    newer = intents.alias("newer")
    is_newer = and_(
        _same(intents, newer, ("target",)),
        newer.c.verb == "apply",
        newer.c.state.in_(_MADE),
        newer.c.decided_at > intents.c.decided_at,
    )
    is_there = exists().where(objects.c.scope == intents.c.scope, objects.c.object == intents.c.target)
    return and_(intents.c.verb == "apply", intents.c.state.in_(_MADE), is_there, ~exists().where(is_newer))


def _has_readers() -> ColumnElement[bool]:
    return exists().where(_same(key_versions, dependencies, ("index", "key")))


def _has_entries() -> ColumnElement[bool]:
    return exists().where(_same(key_versions, index_entries, ("index", "key")))


HOT: Final = frozenset(
    table.name for table in (dependencies, index_entries, intents, key_versions, levels, objects, wakeups)
)
"""Tables that are looked up by many keys at once."""


async def analyze_new(database: Database) -> list[str]:
    """Analyze the hot tables that have rows and no statistics; returns those that are still empty, sorted.

    A user who does not own the tables gets warnings in the server's log and no statistics. SQLite needs none.
    """
    if not database.is_shared:
        return []
    empty: list[str] = []
    async with database.transaction(durable=False) as connection:
        rows = await connection.execute(
            text(
                "SELECT relname, pg_relation_size(oid) AS bytes FROM pg_class "
                "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND reltuples <= 0"
            )
        )
        for name, size in sorted((row.relname, row.bytes) for row in rows if row.relname in HOT):
            if size == 0:
                empty.append(name)
            else:
                await connection.exec_driver_sql(f"ANALYZE {name}")
    return empty
