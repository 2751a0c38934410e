"""How statements are planned that are given many keys, and when a table has grown."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import CursorResult, Table, event, text
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.connect.database import Database
from levelog_store.decide.inputreads import (
    read_buckets,
    read_intents_of,
    read_last_applied,
    read_last_rounds,
    read_levels,
    read_objects,
    read_versions,
)
from levelog_store.owners.upkeep import GROWN, HOT, PAGE, analyze_grown, delete_old
from levelog_store.tables import (
    dependencies,
    index_entries,
    intents,
    key_versions,
    levels,
    metadata,
    objects,
    tombstones,
    wakeups,
)
from rigs import rowcounts
from rigs.leasing import SCOPE
from rigs.rowcounts import work_of

ROWS = 10_000
NAMES = [f"pods/default/{number}" for number in range(10)]
KEYS = [("webs/images", f"k{number}") for number in range(1, 11)]
LEVELS = [("webs/pods", name) for name in NAMES]
OBJECT, KEY = "'pods/default/' || n", {"index": "'webs/images'", "key": "'k' || n"}
LEVEL = {"view": "'webs/pods'", "parent": OBJECT}
FILL = {
    objects: {"object": OBJECT, "partition": "n % 16", "resource": "'pods'", "namespace": "'default'", "name": "n"},
    index_entries: {"object": OBJECT, **KEY},
    key_versions: {"version": "1", **KEY},
    dependencies: {"partition": "n % 16", **LEVEL, **KEY},
    tombstones: {"object": "'pods/default/' || n || '-gone'", "uid": "n", "version": "n", "sequence": "n"},
    levels: {"parent_uid": "n", "status": "'in_sync'", "round": "1", "cause": "n", **LEVEL},
    intents: {"key": "n", "verb": "'apply'", "target": OBJECT, "state": "'settled'", "parent_uid": "n", **LEVEL},
    wakeups: {"partition": "n % 16", "cause": "n", "generation": "n", **LEVEL},
}


@pytest_asyncio.fixture
async def filled(database: Database) -> Database:
    """Tables that have just been filled; in PostgreSQL nobody has analyzed them, but for what levelog does."""
    await fill(database, 1, ROWS)
    await analyze_grown(database)
    return database


async def fill(database: Database, first: int, last: int, *into: Table) -> None:
    """Rows with the numbers from `first` to `last`, in these tables or in all."""
    await rowcounts.fill(database, [rowcounts.numbered(each, **FILL[each]) for each in into or FILL], first, last)


async def plan_of(database: Database, read: Callable[[AsyncConnection], Awaitable[Any]]) -> str:
    """The plans of all statements that a function runs."""
    ran: list[tuple[str, Any]] = []
    async with database.transaction() as connection:

        def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
            ran.append((statement, parameters))

        event.listen(connection.sync_connection, "before_cursor_execute", note)
        await read(connection)
        event.remove(connection.sync_connection, "before_cursor_execute", note)
        plans = [await _explained(connection, statement, given) for statement, given in ran]
        return "\n".join(str(row[-1]) for plan in plans for row in plan)


async def _explained(connection: AsyncConnection, statement: str, given: Any) -> CursorResult[Any]:
    """In PostgreSQL, EXPLAIN with values shows the plan for these values, and not the one that is used for all."""
    if connection.dialect.name != "postgresql":
        return await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)
    await connection.exec_driver_sql(f"PREPARE explained AS {statement}")
    plan = await connection.exec_driver_sql(f"EXPLAIN EXECUTE explained({', '.join(['NULL'] * len(given))})")
    await connection.exec_driver_sql("DEALLOCATE explained")
    return plan


def found_by(plan: str, *columns: str) -> int:
    """How many tables are searched by an index down to these columns."""
    shared = r"Index Cond: .*" + ".*".join(rf"\b{column} (?:=|<=)" for column in columns)
    embedded = r"\(scope=\?.*" + ".*".join(rf"\b{column}[=<]\?" for column in columns)
    return len(re.findall(f"{shared}|{embedded}", plan))


def reads_all(plan: str) -> bool:
    """Tell whether some table is read whole, or all of a scope; not what changed code has left, which is little."""
    plan = re.sub(r"on backfills_pkey.*\n.*", "", plan)
    return bool(re.search(r"Seq Scan on [^w]|\(scope=\?\)|Index Cond: \(scope = \$\d+\)$", plan, re.MULTILINE))


BY_KEYS: tuple[tuple[Any, tuple[str, ...], int], ...] = (
    (read_buckets, ("index", "key"), 2),
    (read_versions, ("index", "key"), 1),
    (read_intents_of, ("view", "parent"), 1),
    (read_last_rounds, ("view", "parent"), 1),
)
"""What is read, by which columns, and of how many tables."""
BY_NAMES: tuple[tuple[Any, str], ...] = (
    (read_objects, "object"),
    (read_levels, "parent"),
    (read_last_applied, "target"),
)


async def test_invariant_5_many_keys_are_looked_up_each_by_itself(filled: Database, subtests: pytest.Subtests) -> None:
    """However many others there are."""
    for read, columns, tables in BY_KEYS:
        with subtests.test(read=str(read)):
            wanted = KEYS if columns[0] == "index" else LEVELS
            plan = await plan_of(filled, _of(read, wanted))
            assert found_by(plan, *columns) >= tables, plan
            assert not reads_all(plan), plan


async def test_many_names_are_looked_up_each_by_itself(filled: Database, subtests: pytest.Subtests) -> None:
    for read, column in BY_NAMES:
        with subtests.test(read=str(read)):
            plan = await plan_of(filled, _of(read, NAMES))
            assert found_by(plan, column) >= 1, plan
            assert not reads_all(plan), plan


def _of(read: Any, wanted: Any) -> Callable[[AsyncConnection], Awaitable[Any]]:
    return lambda connection: read(connection, SCOPE, wanted)


async def test_keys_to_prune_are_found_each_by_itself(filled: Database) -> None:
    await fill(filled, ROWS + 1, 5 * ROWS, key_versions)  # a tenth of them is read faster with the rest
    await analyze_grown(filled)
    places = [("webs/images", f"k{number}") for number in range(1, PAGE + 1)]
    plan = await plan_of(filled, lambda c: delete_old(c, SCOPE, key_versions, ROWS, [*places]))
    assert found_by(plan, "index", "key") >= 3, plan  # these, who reads them, their values
    assert not reads_all(plan), plan


async def test_statistics_are_made_when_a_table_has_rows_and_when_it_has_grown(shared: Database) -> None:
    assert await analyze_grown(shared) == []
    await fill(shared, 1, 1000, key_versions)
    assert await analyze_grown(shared) == ["key_versions"]
    await fill(shared, 1001, 1000 * (GROWN - 1), key_versions)
    assert await analyze_grown(shared) == []
    await fill(shared, 1000 * (GROWN - 1) + 1, 1000 * (GROWN + 1), key_versions)
    assert await analyze_grown(shared) == ["key_versions"]
    async with shared.reading() as connection:
        found = await connection.execute(text("SELECT reltuples FROM pg_class WHERE relname = 'key_versions'"))
        assert found.scalar_one() == 1000 * (GROWN + 1)


async def test_a_table_that_somebody_has_locked_is_not_waited_for(shared: Database) -> None:
    """As VACUUM locks it, and does not give way where it prevents a wraparound."""
    await fill(shared, 1, 100)
    async with shared.transaction() as connection:
        await connection.execute(text("LOCK TABLE levels IN SHARE UPDATE EXCLUSIVE MODE"))
        async with asyncio.timeout(30):
            await analyze_grown(shared)
    assert await analyze_grown(shared) == ["levels"]


async def test_tables_are_analyzed_in_the_schema_that_they_are_in(shared_url: str) -> None:
    async with await Database.open(f"{shared_url}?search_path=%22My-App%22") as database:
        async with database.transaction() as connection:
            await connection.execute(text('CREATE SCHEMA "My-App"'))
            await connection.execute(text('ALTER TABLE public.wakeups SET SCHEMA "My-App"'))
        await fill(database, 1, 100, wakeups)
        assert await analyze_grown(database) == ["wakeups"]
        assert await analyze_grown(database) == []


async def under_way(connection: AsyncConnection) -> None:
    await read_intents_of(connection, SCOPE, LEVELS)


async def values(connection: AsyncConnection) -> None:
    await read_buckets(connection, SCOPE, KEYS)


@pytest.mark.parametrize("read", [under_way, values])
async def test_plans_of_when_the_tables_were_small_serve_until_these_have_grown(
    shared: Database, read: Callable[[AsyncConnection], Awaitable[Any]]
) -> None:
    """The plan of a statement is kept by its connection, which the next transaction has, too."""
    await fill(shared, 1, 100)
    assert await analyze_grown(shared)
    found: list[int] = []
    for first, last in ((101, 200), (201, ROWS)):
        found.append(await work_of(shared, read))
        await fill(shared, first, last)
    found.append(await work_of(shared, read))
    assert HOT.issuperset(await analyze_grown(shared))
    found.append(await work_of(shared, read))
    print(f"{found} rows read: planned with 100 rows, with twice as many, with {ROWS}, planned anew")
    small, twice, _, anew = found
    assert twice <= 4 * small
    assert anew <= 2 * small


@pytest.mark.parametrize("table", sorted(HOT))
async def test_a_table_that_grows_while_others_do_not_is_planned_for_too(shared: Database, table: str) -> None:
    async def work() -> list[int]:
        return [await work_of(shared, read) for read in (under_way, values)]

    await fill(shared, 1, 100)
    await analyze_grown(shared)
    small = await work()
    await fill(shared, 101, ROWS, metadata.tables[table])
    large = await work()
    assert await analyze_grown(shared) == [table]
    anew = await work()
    print(f"{small} rows read: planned with 100 rows, {large} with {ROWS} in {table}, {anew} planned anew")
    assert all(new <= 4 * old for new, old in zip(anew, small, strict=True))
