"""What failed of a level's writes is counted from the round after that in which it was last in sync."""

from typing import Any

import msgspec
from sqlalchemy import insert

from levelog_store.connect.database import Database
from levelog_store.look.refusals import read_refusals
from levelog_store.tables import decisions
from rigs.intents import decide, intent
from rigs.leasing import SCOPE
from rigs.tablerows import table_row
from rigs.webs import receipt

VIEW = "webs/pods"
SHOP, BLOG = "webs.example.com/default/shop", "webs.example.com/default/blog"


def failed(parent: str, number: int, error: str) -> dict[str, Any]:
    """A write of a round that came to nothing."""
    target = f"pods/default/{error}"
    key = f"{parent} {number} {error}"
    row = intent(target, verb="delete", key=key, parent=parent, round=number, state="failed")
    said = receipt(row, outcome="failed", error=f"delete {target}: {error}")
    return {**row, "error": said.error, "receipt": msgspec.json.encode(said)}


async def told(database: Database, before: dict[str, int]) -> dict[str, tuple[int, str, str]]:
    async with database.reading() as connection:
        found = await read_refusals(connection, SCOPE, {(VIEW, parent): number for parent, number in before.items()})
    return {parent: (each.count, each.write, each.why) for (_, parent), each in found.items()}


async def test_failures_count_since_the_level_was_in_sync_and_before_the_round(database: Database) -> None:
    writes = [failed(SHOP, 1, "old"), failed(SHOP, 3, "one"), failed(SHOP, 4, "two"), failed(BLOG, 2, "late")]
    writes += [intent("pods/default/done", verb="delete", parent=BLOG, state="settled")]
    await decide(database, *writes)
    rows = [(SHOP, 1, "settling"), (SHOP, 2, "in_sync"), (SHOP, 4, "failed"), (BLOG, 1, "in_sync")]
    made = [
        table_row(decisions, SCOPE, ordinal=ordinal, view=VIEW, parent=parent, round=number, status=status)
        for ordinal, (parent, number, status) in enumerate(rows)
    ]
    async with database.transaction() as connection:
        await connection.execute(insert(decisions), made)
    last = (2, "delete pods/default/two", "two")
    assert await told(database, {SHOP: 5, BLOG: 2}) == {SHOP: last}
    assert await told(database, {SHOP: 4, BLOG: 3}) == {
        SHOP: (1, "delete pods/default/one", "one"),
        BLOG: (1, "delete pods/default/late", "late"),
    }
    assert await told(database, {SHOP: 2}) == {SHOP: (1, "delete pods/default/old", "old")}
    assert await told(database, {}) == {}
    many = {f"webs.example.com/default/{number}": 1 for number in range(1_200)}  # more terms than SQLite takes in one
    assert await told(database, {**many, SHOP: 5}) == {SHOP: last}
