"""`levelog plan`: what other code would decide, before it runs."""

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from sqlalchemy import select

from levelog.operator import Operator
from levelog_base.secrets.redaction import Redactor
from levelog_processors.program import Program
from levelog_replay.calling import ReplayCaller
from levelog_replay.planning import Course, Planned, plan
from levelog_store.connect.database import Database
from levelog_store.deliver.positions import write_held
from levelog_store.owners.scopes import find_scopes
from levelog_store.rows import LevelRow, Scope
from levelog_store.tables import intents, levels, metadata
from rigs.histories import Web, images
from rigs.levelog import WEBS_FILE
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.recorded import record_webs
from rigs.versions import Versions
from rigs.waiting import until
from rigs.webs import pod, web

WEB = "webs.example.com/default"
SHOPS = 110
"""More than one page of what is computed anew."""
READERS = (
    "@op.view\ndef counted(",
    """
from levelog.levels import Levels

@op.view
def summed(web: Web, levels: Levels) -> Level[list[str]]:
    return Level(desired=[], actual=[f"{name} {each.status} {each.reason}" for name, each in levels.items()])

@op.view(levels_of=[Web])
def owned(pod: Pod, levels: Levels) -> Level[list[str]]:
    of = levels.of(Web, pod.metadata.name.rpartition("-")[0])
    return Level(desired=[], actual=[f"{name} {each.status} {each.reason}" for name, each in of.items()])

@op.view
def counted(""",
)
"""Views that are given the levels of the others: of their parent, and of another one."""
GO = ("CALLS: Counter", "from threading import Event\n\nGO = Event()\nCALLS: Counter")
MORE = ("desired=web.spec.replicas", "desired=web.spec.replicas + 1")
FIRST_FREE = ('"name": f"{web.metadata.name}-{number}"', '"name": f"{web.metadata.name}-new-{number}"')
CHANGES: dict[str, tuple[tuple[str, str], ...]] = {
    "nothing": (),
    "an index": (("yield owner, pod.spec.containers[0].image", "yield owner, 'b'"),),
    "an index that raises": (("yield owner, pod.metadata.name", "yield owner, pod.metadata.name[9:][0]"),),
    "a view": (MORE,),
    "a view that raises": (
        ("desired=web.spec.replicas, ", "desired=web.spec.replicas + 0 // (web.spec.replicas - 2), "),
    ),
    "a reconcile function": (FIRST_FREE,),
    "another name": (("def pictures(", "def drawn("),),
    "other parents": (
        ("def counted(web: Web, ", "def counted(pod: Pod, "),
        ("=web.spec.replicas, actual=len(names[web.as_owner])", "=0, actual=0"),
        ("fill(web: Web", "fill(web: Pod"),
    ),
    "a filter": (("@op.view\ndef counted(", '@op.view(labels={"tier": "gold"})\ndef counted('),),
}
QUICK = ("an index", "a view that raises", "another name", "other parents")


async def begin(nats_url: str, database_url: str, operator: Operator) -> None:
    """Shops in sync, one that waits for a write under way, and one whose write nobody has claimed."""
    async with Processing(nats_url, database_url, [operator]) as stack:
        records = [web(f"shop{n}", 1 + n, replicas=1, image="a") for n in range(SHOPS)]
        owned = [pod(f"shop{n}-0", 1000 + n, owner=f"uid-shop{n}") for n in range(SHOPS)]
        stack.start()
        await stack.folded(await stack.listed(*records, *owned, version=10_000))
        await stack.folded(await stack.tell(web("shop0", 20_000, replicas=2, image="a")))
        await stack.claim()
        await stack.folded(await stack.tell(web("shop1", 20_001, replicas=2, image="a")))


async def contents(database: Database) -> dict[str, list[Any]]:
    async with database.reading() as connection:
        return {name: list(await connection.execute(select(table))) for name, table in metadata.tables.items()}


async def planned(database: Database, operator: Operator, course: Course | None = None) -> tuple[Scope, Planned]:
    async with database.reading() as connection:
        [scope] = await find_scopes(connection)
    caller = ReplayCaller(threads=4)
    return scope, await plan(database, scope, Program([operator]), redactor=Redactor(), caller=caller, course=course)


def verdict(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("status", "reason", "desired", "actual", "drift", "round"))


def told_of(parent: str, rows: Mapping[tuple[str, str], Mapping[str, Any]]) -> list[str]:
    """What the readers should say of a Web, or of the one that a pod is named after."""
    web = parent if parent.startswith("webs.") else f"webs.example.com/default/{parent.rpartition('/')[2][:-2]}"
    found = sorted((view, row["status"], row["reason"]) for (view, of), row in rows.items() if of == web)
    return [
        f"{view.partition('/')[2]} {status} {reason}"
        for view, status, reason in found
        if view.partition("/")[2] in ("counted", "drawn", "pictures")
    ]


@pytest.mark.parametrize(
    "changed", [each if each in QUICK else pytest.param(each, marks=pytest.mark.long) for each in CHANGES]
)
async def test_what_is_planned_is_what_the_code_decides_once_it_runs(
    nats_server: NatsServer, database_url: str, tmp_path: Path, changed: str
) -> None:
    versions = Versions(tmp_path)
    await begin(nats_server.url, database_url, versions.load(READERS))
    async with await Database.open(database_url, read_only=True) as database:
        held = await contents(database)
        _, found = await planned(database, versions.load(READERS, *CHANGES[changed]))
        assert await contents(database) == held, "a plan writes nothing"
    expected = {(row.view, row.parent): verdict(row._mapping) for row in held["levels"]}
    for each in found.levels:
        name = each.change.name
        if each.change.after is None:
            del expected[name]
        else:
            expected[name] = verdict(structs.asdict(each.change.after))
    async with Processing(nats_server.url, database_url, [versions.load(READERS, *CHANGES[changed])]) as stack:
        stack.start()
        await stack.folded(0)
        held_now = {(row["view"], row["parent"]): row for row in await stack.rows(levels)}
        assert {name: verdict(row) for name, row in held_now.items()} == expected
        for (view, parent), row in held_now.items():
            if view in ("webs/summed", "webs/owned"):
                assert json.loads(row["actual"]) == told_of(parent, held_now), f"{view} of {parent}"
        rows = {row["key"]: row for row in await stack.rows(intents)}
    before = {row.key: row.state for row in held["intents"]}
    written = {key: (row["verb"], row["target"], row["body"]) for key, row in rows.items() if key not in before}
    writes = [write for each in found.levels for write in each.writes]
    assert {write.key: (write.verb, write.target, write.body) for write in writes} == written
    superseded = [key for key, state in before.items() if state == "pending" and rows[key]["state"] == "superseded"]
    assert found.dropped == len(superseded)
    assert found.is_same == (changed == "nothing")
    assert not found.unlisted
    assert not any(each.is_due for each in found.levels)


async def test_levels_change_with_those_that_they_read_and_are_planned_with_them(
    nats_server: NatsServer, database_url: str, tmp_path: Path
) -> None:
    versions = Versions(tmp_path)
    await begin(nats_server.url, database_url, versions.load(READERS))
    held = LevelRow(view="webs/record", parent=f"{WEB}/shop7", parent_uid="", partition=0, status="failed", position=9)
    async with await Database.open(database_url) as database:
        async with database.transaction() as connection:
            [scope] = await find_scopes(connection)
            await write_held(connection, scope, [held])
        _, found = await planned(database, versions.load(READERS, MORE))
    assert held.view not in found.counts
    changes = {each.change.name: each.change for each in found.levels}
    own, other = (changes["webs/summed", f"{WEB}/shop7"], changes["webs/owned", "pods/default/shop7-0"])
    for change in (own, other):
        assert change.before is not None
        assert change.after is not None
        assert b"counted in_sync" in (change.before.actual or b"")
        assert b"counted settling" in (change.after.actual or b"")


async def test_objects_whose_calls_without_records_fail_are_no_levels_to_a_plan(
    nats_server: NatsServer, database_url: str
) -> None:
    op = Operator("webs")

    @op.on.event
    def record(web: Web) -> None:
        raise ValueError("poison")

    async with Processing(nats_server.url, database_url, [op]) as stack:
        await stack.listed(web("shop", 1), version=1)
        stack.start()

        async def is_held() -> bool:
            return [row["status"] for row in await stack.rows(levels)] == ["failed"]

        await until(is_held, "the object that is held")
    other = Operator("webs")
    other.index(images)
    async with await Database.open(database_url, read_only=True) as database:
        found = [(await planned(database, each))[1] for each in (op, other)]
    assert [(each.counts, each.levels) for each in found] == [({}, [])] * 2


async def test_who_waits_for_a_plan_is_told_of_the_view_whose_function_runs(
    nats_server: NatsServer, database_url: str, tmp_path: Path
) -> None:
    versions = Versions(tmp_path)
    await begin(nats_server.url, database_url, versions.load())
    slow = versions.load(MORE, ("    for number in", "    assert GO.wait(60)\n    for number in"), GO)
    go, course = slow.reconcilers["counted"].function.__globals__["GO"], Course()
    assert course.awaited == "the tables"
    async with await Database.open(database_url, read_only=True) as database:
        planning = asyncio.create_task(planned(database, slow, course))
        try:
            await until(
                lambda: not planning.done() and course.awaited.startswith("the functions of webs/counted, for "),
                "the view that is waited for",
            )
        finally:
            go.set()
            await planning
    assert course.awaited == "the views of all levels"


async def test_the_command_shows_what_changes_together_and_ends_with_status_1(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    recorded = await record_webs(nats_server.url, tmp_path)
    greedy, other = tmp_path / "greedy.py", tmp_path / "other.py"
    greedy.write_text(WEBS_FILE.read_text().replace("range(web.spec.replicas)", "range(web.spec.replicas + 1)"))
    other.write_text(
        WEBS_FILE.read_text().replace(
            "@op.view\n",
            "from levelog.levels import Levels\n\n\n"
            "class Node(Resource, version='v1', plural='nodes', scope='Cluster'):\n    pass\n\n\n"
            "@op.index\ndef nodes(node: Node) -> Iterator[tuple[str, str]]:\n    yield '', node.metadata.name\n\n\n"
            "@op.view\ndef on(web: Web, nodes: Index[str, str]) -> Level[bool]:\n    return Level(True, True)\n\n\n"
            "@op.view\ndef summed(web: Web, levels: Levels) -> Level[list[str]]:\n    return Level([], [*levels])\n\n\n"
            "@op.view\n",
            1,
        )
    )
    env = {**recorded.env, "COLUMNS": "80"}
    del env["LEVELOG_NATS_URL"]
    same = await recorded.levelog.ends("plan", WEBS_FILE, env=env)
    assert (same.status, same.stderr) == (0, "")
    assert "writes that would follow: none" in same.stdout
    more = await recorded.levelog.ends("plan", greedy, env=env)
    assert (more.status, more.stderr) == (1, "")
    assert "webs/pods, 1 level: in_sync -> settling; apply pods (1)" in more.stdout
    assert '+ shop-2: "a"' in more.stdout
    assert "would be dropped: 1" in more.stdout
    assert max(map(len, more.stdout.splitlines())) <= 80, more.stdout
    as_json = await recorded.levelog.ends("plan", greedy, "--json", env=env)
    told = json.loads(as_json.stdout)
    assert (as_json.status, told["is_same"], told["views"]) == (1, False, {"webs/pods": {"before": 2, "after": 2}})
    assert [[write["target"] for write in level["writes"]] for level in told["levels"]] == [
        ["pods/default/other-0", "pods/default/other-1"],
        ["pods/default/shop-2"],
    ]
    assert not any(level["is_due"] for level in told["levels"])
    with closing(sqlite3.connect(tmp_path / "levelog.db")) as database, database:
        database.execute(
            "insert into wakeups (scope, view, parent, partition, cause, generation) "
            "select scope, view, parent, partition, 0, 1 from levels where parent like '%/other'"
        )
    due = json.loads((await recorded.levelog.ends("plan", greedy, "--json", env=env)).stdout)
    assert [level["is_due"] for level in due["levels"]] == [True, False]
    unlisted = await recorded.levelog.ends("plan", other, env={**env, "COLUMNS": "200"})
    assert unlisted.status == 1, unlisted.stderr
    assert "writes that would follow at once: none" in unlisted.stdout
    assert (
        "webs/on decides, and perhaps writes, once this is listed: nodes\nwebs/summed decides after that"
        in unlisted.stdout
    )


async def test_a_database_without_the_application_is_refused_by_name(nats_server: NatsServer, tmp_path: Path) -> None:
    recorded = await record_webs(nats_server.url, tmp_path)
    refused = await recorded.levelog.ends("plan", WEBS_FILE, "--application", "shops", env=recorded.env)
    assert (refused.status, refused.stdout) == (2, "")
    assert "holds no such application; it holds: webs on" in refused.stderr
