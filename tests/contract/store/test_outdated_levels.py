"""Levels that changed code has not decided on are unknown to whoever asks, though their rows stay as they were."""

import pytest
from msgspec.structs import replace
from sqlalchemy import delete, insert, text, update

from levelog.levels import LevelStatus
from levelog_processors.tables import SqlTables
from levelog_store.actuate.daemonstates import read_awaited
from levelog_store.connect.database import Database
from levelog_store.dialects import _built_once, rows_of  # pyright: ignore[reportPrivateUsage]
from levelog_store.fold.levelwrites import wake_stuck
from levelog_store.fold.statewrites import Unwritten, write_state
from levelog_store.look.levelpages import LevelQuery, count_levels, read_level_lines, read_level_page
from levelog_store.look.overview import Workload, count_work
from levelog_store.look.sqlviews import LevelView, replace_views
from levelog_store.owners.handlers import CHANGED_CODE, Handler
from levelog_store.rows import LevelRow, Scope
from levelog_store.tables import backfills, checkpoints, levels
from rigs.leasing import scope_of
from rigs.storedobjects import stored_object
from rigs.webs import NOON

RESOURCE = "webs.example.com"
CODE = tuple(Handler(kind="view", name=f"webs/{name}", fingerprint="1", resource=RESOURCE) for name in ("old", "same"))


SHOP, YOUNG = (replace(stored_object(f"{RESOURCE}/a/{name}", uid="u"), partition=1) for name in ("shop", "young"))


@pytest.fixture
async def scope(database: Database) -> Scope:
    """The code of a view has changed, and nobody has decided on its level since; the one of another is as it was."""
    scope = await scope_of(database, code=CODE)
    row = LevelRow(
        view="webs/old",
        parent=SHOP.object,
        partition=1,
        parent_uid="u",
        status="settling",
        drift=b'{"missing":["a"]}',
        evaluated_at=NOON,
        since=NOON,
    )
    async with database.transaction() as connection:
        await connection.execute(update(checkpoints).values(sequence=9))
        await write_state(connection, scope, Unwritten(objects={SHOP.object: SHOP, YOUNG.object: YOUNG}))
        both = [row, replace(row, view="webs/same", status="in_sync")]
        await connection.execute(insert(levels), rows_of(scope, both))
    old, same = CODE
    return await scope_of(database, code=(replace(old, fingerprint="2"), same), fingerprint="code-2")


async def finish(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(delete(backfills))


async def test_people_see_them_blocked_and_those_that_there_are_not_yet(database: Database, scope: Scope) -> None:
    async with database.reading() as connection:
        found = [(each.view, each.parent, each.status) for each in await read_level_lines(connection, scope)]
        blocked = await read_level_lines(connection, scope, LevelQuery(statuses=("blocked",)))
        settling = await read_level_lines(connection, scope, LevelQuery(statuses=("settling",)))
        counts = await count_levels(connection, scope)
        work = await count_work(connection, scope, range(scope.partitions))
    old = [("webs/old", each.object, "blocked") for each in (SHOP, YOUNG)]
    assert found == [*old, ("webs/same", SHOP.object, "in_sync")]
    assert ([(each.view, each.parent, each.status) for each in blocked], settling) == (old, [])
    assert counts == {"blocked": 1, "in_sync": 1}
    assert sorted(work, key=lambda each: each.view) == [
        Workload("webs/old", "blocked", 1),
        Workload("webs/same", "in_sync", 1),
    ]
    await finish(database)
    async with database.reading() as connection:
        lines = await read_level_lines(connection, scope)
    assert [(each.view, each.status) for each in lines] == [("webs/old", "settling"), ("webs/same", "in_sync")]


@pytest.mark.parametrize("statuses", [(), ("blocked",), ("settling",)])
@pytest.mark.parametrize("order", ["since", "view"])
async def test_a_page_has_them_among_the_blocked(
    database: Database, scope: Scope, statuses: tuple[str, ...], order: str
) -> None:
    wanted = LevelQuery(statuses=statuses, view="old", order="since" if order == "since" else "view")
    async with database.reading() as connection:
        found = await read_level_page(connection, scope, wanted, most=9)
    assert [each.status for each in found] == ([] if statuses == ("settling",) else ["blocked"])


async def test_an_sql_view_says_so_and_nothing_else_of_them(database: Database, scope: Scope) -> None:
    await replace_views(database, "webs", [LevelView("old", "webs/old", ())])
    place = "webs.old" if database.is_shared else "old"
    for expected in (("blocked", CHANGED_CODE, True, True), ("settling", "", False, False)):
        async with database.reading() as connection:
            shown = f"select status, reason, drift is null, evaluated_at is null from {place}"
            [row] = await connection.execute(text(shown))
        assert tuple(row) == expected
        await finish(database)


async def test_daemons_and_views_of_other_processes_see_them_blocked(database: Database, scope: Scope) -> None:
    level = "webs/old", SHOP.object
    unknown = LevelStatus(status="blocked", reason=CHANGED_CODE)
    async with database.reading() as connection:
        assert await read_awaited(connection, scope, [level]) == {level: ("u", unknown)}
        statements = len(_built_once)
        await read_awaited(connection, scope, [level])
        assert len(_built_once) == statements, "each look builds a statement that is kept for ever"
    rows = await SqlTables(database, scope).levels_of([SHOP.object])
    assert {(row.view, row.status) for row in rows.values()} == {("webs/old", "blocked"), ("webs/same", "in_sync")}
    await finish(database)
    assert (await SqlTables(database, scope).levels_of([SHOP.object]))[level].status == "settling"
    async with database.reading() as connection:
        assert (await read_awaited(connection, scope, [level]))[level][1].status == "settling"


@pytest.mark.parametrize("kind", ["view", "reconcile"])
async def test_one_that_settles_is_not_taken_for_stuck(database: Database, scope: Scope, kind: str) -> None:
    async with database.transaction() as connection:
        await connection.execute(update(backfills).values(kind=kind))
        assert await wake_stuck(connection, scope) == 0
    await finish(database)
    async with database.transaction() as connection:
        assert await wake_stuck(connection, scope) == 1
