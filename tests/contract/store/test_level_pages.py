"""Levels are read in the order that was asked for, of the statuses that were asked for."""

from datetime import timedelta
from operator import attrgetter

import pytest
from sqlalchemy import insert, text

from levelog_base.errors import ConfigurationError
from levelog_history.pastlevels import levels_now
from levelog_store.connect.database import Database
from levelog_store.dialects import rows_of
from levelog_store.look.levelpages import LevelOrder, LevelQuery, count_levels, in_order, read_level_page
from levelog_store.look.overview import LevelLine
from levelog_store.rows import STATUSES, LevelRow, Scope
from levelog_store.tables import levels
from rigs.leasing import scope_of
from rigs.webs import NOON

MANY = 60


@pytest.fixture
async def scope(database: Database) -> Scope:
    """Of an application with many levels, among them some that came to their status at the same moment."""
    opened = await scope_of(database)
    rows = [
        LevelRow(
            view=f"shops/{'ab'[number % 2]}",
            parent=f"webs/{'xy'[number % 3 // 2]}/web-{number // 2:03}",
            partition=0,
            parent_uid="u",
            status=STATUSES[number % len(STATUSES)],
            round=number % 5,
            cause=number,
            since=NOON + timedelta(seconds=number * 7 % 11),
        )
        for number in range(MANY)
    ]
    async with database.transaction() as connection:
        await connection.execute(insert(levels), rows_of(opened, rows))
    return opened


async def read_first(database: Database, scope: Scope, wanted: LevelQuery, most: int = 1000) -> list[LevelLine]:
    async with database.reading() as connection:
        return await read_level_page(connection, scope, wanted, most=most)


@pytest.mark.parametrize("order", ["since", "newest", "parent", "view", "round"])
@pytest.mark.parametrize("statuses", [(), ("failed",), ("failed", "settling")])
async def test_the_first_so_many_levels_are_those_of_all_in_their_order(
    database: Database, scope: Scope, order: LevelOrder, statuses: tuple[str, ...]
) -> None:
    wanted = LevelQuery(order=order, statuses=statuses)
    whole = await read_first(database, scope, wanted)
    assert len(whole) == MANY * (len(statuses) or len(STATUSES)) / len(STATUSES)
    assert {each.status for each in whole} == set(statuses or STATUSES)
    assert whole == in_order(whole, order)
    assert await read_first(database, scope, wanted, 7) == whole[:7]


async def test_order_is_as_it_is_called(database: Database, scope: Scope) -> None:
    told: list[tuple[LevelOrder, str, bool]] = [
        ("since", "since", True),
        ("newest", "since", False),
        ("round", "round", False),
    ]
    for order, name, is_up in told:
        found = [attrgetter(name)(each) for each in await read_first(database, scope, LevelQuery(order=order))]
        assert found == sorted(found, reverse=not is_up)


async def test_a_view_and_the_end_of_a_name_choose(database: Database, scope: Scope) -> None:
    for wanted in (LevelQuery(view="a"), LevelQuery(view="shops/a")):
        assert {each.view for each in await read_first(database, scope, wanted)} == {"shops/a"}
    for name in ("web-007", "x/web-007"):
        found = await read_first(database, scope, LevelQuery(name=name))
        assert {each.parent.rpartition("/")[2] for each in found} == {"web-007"}
    assert await read_first(database, scope, LevelQuery(name="eb-007")) == []


async def test_an_unknown_parent_is_refused_once_there_are_levels(database: Database) -> None:
    opened, wanted = await scope_of(database), LevelQuery(name="shopp")
    async with database.reading() as connection:
        assert (await levels_now(connection, [opened], wanted)).lines == []
    row = LevelRow(view="shops/a", parent="webs/x/shop", partition=0, parent_uid="u", status="in_sync")
    async with database.transaction() as connection:
        await connection.execute(insert(levels), rows_of(opened, [row]))
    async with database.reading() as connection:
        with pytest.raises(ConfigurationError, match="no level of a parent 'shopp'"):
            await levels_now(connection, [opened], wanted)


async def test_levels_are_counted_by_status(database: Database, scope: Scope) -> None:
    async with database.reading() as connection:
        assert await count_levels(connection, scope) == dict.fromkeys(STATUSES, MANY // len(STATUSES))


async def test_the_longest_out_of_sync_are_found_in_an_index(database: Database, scope: Scope) -> None:
    """SQLite tells what it will do; PostgreSQL prefers to scan a table this small."""
    explain = "EXPLAIN QUERY PLAN " if database.dialect.name == "sqlite" else "EXPLAIN "
    query = f"SELECT view FROM levels WHERE scope = {scope.number} AND status = 'failed' ORDER BY since LIMIT 100"
    async with database.reading() as connection:
        if database.dialect.name == "postgresql":
            await connection.execute(text("SET LOCAL enable_seqscan = off"))
        plan = " ".join(str(row) for row in await connection.execute(text(explain + query)))
    assert "levels_status" in plan
    assert "Sort" not in plan
    assert "TEMP B-TREE" not in plan
