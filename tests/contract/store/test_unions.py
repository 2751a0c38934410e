"""Several reads as one statement give the rows that each gives by itself."""

from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Dialect, Select, func, select

from levelog_store.connect.database import Database
from levelog_store.dialects import OF_SCOPE, built_once, one_of_named
from levelog_store.tables import intents, key_versions
from levelog_store.unions import Part, read_rows
from rigs.intents import NOON, decide, intent
from rigs.leasing import SCOPE

INTENTS: Final = (
    intent("pods/default/a", body={"ü": 1.0}, due_at=NOON, sealed=b"\0\xff"),
    intent("pods/default/b", state="claimed", sighted_at=NOON, is_folded=True, target_version=2**62),
    intent("pods/default/c", state="settled", receipt=b'{"a": 1.0}', sighted_version=3),
)


@built_once
def whole(_: Dialect) -> Select[Any]:
    """Columns of all types that there are."""
    return select(intents).where(intents.c.scope == OF_SCOPE)


@built_once
def last(dialect: Dialect) -> Select[str, Any, bool]:
    """Computed, of some targets, in an order of its own."""
    later = func.coalesce(intents.c.due_at, NOON - timedelta(days=1)).label("later")
    is_one = one_of_named(dialect, intents.c.target, "targets")
    columns = (intents.c.target, later, (intents.c.state == "settled").label("is_over"))
    return select(*columns).where(intents.c.scope == OF_SCOPE, is_one).order_by(intents.c.key.desc()).limit(1)


@built_once
def keys(_: Dialect) -> Select[str]:
    """One column only."""
    return select(intents.c.key).where(intents.c.scope == OF_SCOPE, intents.c.state == "settled")


@built_once
def versions(_: Dialect) -> Select[str, int]:
    return select(key_versions.c.index, key_versions.c.version).where(key_versions.c.scope == OF_SCOPE)


async def test_rows_are_those_of_each_read_by_itself(database: Database) -> None:
    await decide(database, *INTENTS)
    async with database.reading() as connection:
        named: Part = (last, {"targets": ["pods/default/b", "pods/default/a"]})
        parts: tuple[Part | None, ...] = ((versions, {}), (whole, {}), None, (keys, {}), named)
        alone = [rows for part in parts for rows in await read_rows(connection, SCOPE, part)]
        found = list(await read_rows(connection, SCOPE, *parts))
        assert [len(rows) for rows in found] == [0, 3, 0, 1, 1]
        assert found == alone
        assert [list(row) for row in found[1]] == [list(intents.c.keys())] * 3
        assert found[3] == [{"key": INTENTS[2]["key"]}]
        assert found[4] == [{"target": "pods/default/b", "later": NOON - timedelta(days=1), "is_over": False}]


async def test_none_at_all_is_no_statement(database: Database) -> None:
    async with database.reading() as connection:
        assert list(await read_rows(connection, SCOPE, None)) == [[]]
