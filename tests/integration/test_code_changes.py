"""Changed code: what it changes is computed anew from the tables, as from the log, and the rest goes on."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelog.operator import Operator
from levelog_base.wire.objects import Application, Cluster
from levelog_base.wire.records import LoggedRecord
from levelog_processors.engine import Engine
from levelog_processors.program import Program
from levelog_processors.tables import SqlTables
from levelog_store.connect.database import Database
from levelog_store.look.levelpages import read_level_lines
from levelog_store.owners.leases import Leases
from levelog_store.owners.scopes import open_scope
from levelog_store.rows import ERRORS
from levelog_store.tables import (
    backfills,
    decisions,
    dependencies,
    handlers,
    index_entries,
    intents,
    key_versions,
    levels,
    objects,
    wakeups,
)
from rigs.leasing import processor
from rigs.migrated import migrate
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.run.examples import examples
from rigs.versions import Versions, calls_of
from rigs.webs import deleted, logged, pod, web

UPPER = ("yield owner, pod.spec.containers[0].image", "yield owner, pod.spec.containers[0].image.upper()")
REVERSED = ("actual=sorted(images[web.as_owner])", "actual=sorted(images[web.as_owner], reverse=True)")

READERS = (
    "@op.view\ndef counted(",
    """
from levelog.levels import Levels

@op.view
def summed(web: Web, levels: Levels) -> Level[list[str]]:
    return Level(desired=["in_sync"] * len(levels), actual=[each.status for each in levels.values()])

@op.view
def counted(""",
)
"""A view that is given the levels of the others."""


@pytest.fixture
def versions(tmp_path: Path) -> Versions:
    return Versions(tmp_path)


class Case:
    """Processes that follow each other on one log and one database."""

    def __init__(self, nats_url: str, database_url: str) -> None:
        self._nats_url = nats_url
        self._database_url = database_url

    def running(self, operator: Operator) -> Processing:
        return Processing(self._nats_url, self._database_url, [operator])

    async def begin(self, operator: Operator, *, shops: int = 3, pods: int = 2) -> int:
        """Run a version until shops with as many pods as they want are in sync; returns the last sequence."""
        async with self.running(operator) as stack:
            records = [web(f"shop{n}", 1 + n, replicas=pods, image="a") for n in range(shops)]
            owned = [
                pod(f"shop{n}-{m}", 1000 + n * pods + m, owner=f"uid-shop{n}")
                for n in range(shops)
                for m in range(pods)
            ]
            last = await stack.listed(*records, *owned, version=10_000)
            stack.start()
            await stack.folded(last)
            assert {row["status"] for row in await stack.rows(levels)} == {"in_sync"}
        return last


@pytest.fixture
def case(nats_server: NatsServer, database_url: str) -> Case:
    return Case(nats_server.url, database_url)


async def values(stack: Processing, index: str) -> list[str]:
    return sorted(row["value"].decode() for row in await stack.rows(index_entries) if row["index"] == index)


async def statuses(stack: Processing, view: str) -> dict[str, str]:
    return {row["parent"].rpartition("/")[2]: row["status"] for row in await stack.rows(levels) if row["view"] == view}


async def test_invariant_9_a_changed_index_is_computed_from_the_objects_before_its_view_decides(
    case: Case, versions: Versions
) -> None:
    last = await case.begin(versions.load())
    changed = versions.load(UPPER)
    async with case.running(changed) as stack:
        async with stack.database.reading() as connection:
            lines = await read_level_lines(connection, stack.scope)
        assert {(each.view, each.status) for each in lines} == {
            ("webs/pictures", "blocked"),
            ("webs/counted", "in_sync"),
        }
        processor = stack.start()
        await stack.folded(last)
        assert await values(stack, "webs/images") == ['"A"'] * 6
        assert await statuses(stack, "webs/pictures") == dict.fromkeys(("shop0", "shop1", "shop2"), "drifting")
        assert processor.calls.functions == {"webs/pictures": 3}
        assert calls_of(changed) == {"images": 6}
        assert processor.records == 0


async def test_an_object_that_the_new_code_cannot_index_blocks_its_owner_instead_of_keeping_older_entries(
    case: Case, versions: Versions
) -> None:
    last = await case.begin(versions.load(), shops=2)
    picky = ('    CALLS["images"] += 1\n', "    if pod.metadata.name == 'shop0-1':\n        raise ValueError('no')\n")
    async with case.running(versions.load(picky)) as stack:
        stack.start()
        await stack.folded(last)
        entries = [row for row in await stack.rows(index_entries) if row["index"] == "webs/images"]
        left_out = [row for row in entries if row["object"] == "pods/default/shop0-1"]
        assert {row["error"] for row in left_out} == {"ValueError: no"}
        assert all(row["key"].startswith(ERRORS) for row in left_out)
        assert sorted((await statuses(stack, "webs/pictures")).values()) == ["blocked", "in_sync"]
        assert set((await statuses(stack, "webs/counted")).values()) == {"in_sync"}


async def test_changed_code_that_comes_to_the_same_writes_no_row_and_decides_nothing(
    case: Case, versions: Versions
) -> None:
    """And who is given the levels of a changed view sees them as they were, and is not called."""
    last = await case.begin(versions.load(READERS))
    async with case.running(versions.load(READERS)) as stack:
        held = [await stack.rows(table) for table in (levels, decisions, dependencies)]
    changed = versions.load(READERS, REVERSED)
    async with case.running(changed) as stack:
        processor = stack.start()
        await stack.folded(last)
        assert processor.calls.functions == {"webs/pictures": 3}
        assert calls_of(changed) == {}, "no index is computed anew"
        assert [await stack.rows(table) for table in (levels, decisions, dependencies)] == held


async def test_who_waits_for_a_level_that_comes_to_the_same_is_decided_on_after_it(
    case: Case, versions: Versions
) -> None:
    last = await case.begin(versions.load(READERS))
    summed = "[each.status for each in levels.values()]", "list(each.status for each in levels.values())"
    async with case.running(versions.load(READERS, REVERSED, summed)) as stack:
        processor = stack.start()
        await stack.folded(last)
        assert processor.calls.functions == {"webs/pictures": 3, "webs/summed": 3}


async def test_levels_that_a_killed_processor_has_not_come_to_are_decided_on_by_the_next(
    case: Case, versions: Versions
) -> None:
    await case.begin(versions.load(), shops=20)
    async with case.running(versions.load(REVERSED)) as stack:
        epochs = await processor(stack.database, stack.scope, "test").tend()
        tables = (SqlTables(stack.database, stack.scope) for _ in range(2))
        killed, next_one = (Engine(each, stack.program, most_bodies=0) for each in tables)
        await killed.load(epochs)
        assert len((await killed.decide(most=5)).decided) == 5
        await killed.flush()
        left = {row["partition"] for row in await stack.rows(backfills)}
        assert await stack.rows(wakeups) == [], "a backfill tells of them"
        await next_one.load(epochs)
        while (await next_one.decide()).has_more:
            pass
        assert not any(row.body for row in next_one.state.objects.values()), (
            "they leave memory though nothing is written"
        )
        await next_one.flush()
        pictures = [row for row in await stack.rows(levels) if row["view"] == "webs/pictures"]
        assert next_one.evaluator.calls.functions == {
            "webs/pictures": sum(row["partition"] in left for row in pictures)
        }
        assert (await stack.rows(backfills), await stack.rows(wakeups)) == ([], [])
        await killed.close()
        await next_one.close()


async def test_levels_that_come_out_otherwise_are_written_with_a_decision(case: Case, versions: Versions) -> None:
    last = await case.begin(versions.load())
    more = ("[web.spec.image] * web.spec.replicas", "[web.spec.image] * (2 + (web.metadata.name == 'shop1'))")
    async with case.running(versions.load(more)) as stack:
        held = len(await stack.rows(decisions))
        stack.start()
        await stack.folded(last)
        assert await statuses(stack, "webs/pictures") == {"shop0": "in_sync", "shop1": "drifting", "shop2": "in_sync"}
        (fresh,) = sorted(await stack.rows(decisions), key=lambda row: row["ordinal"])[held:]
        assert (fresh["parent"], fresh["status"]) == ("webs.example.com/default/shop1", "drifting")


async def test_a_changed_filter_of_a_view_lets_go_of_the_parents_that_it_leaves_out(
    case: Case, versions: Versions
) -> None:
    last = await case.begin(versions.load())
    async with case.running(
        versions.load(("@op.view\ndef pictures", '@op.view(labels={"a": "b"})\ndef pictures'))
    ) as stack:
        processor = stack.start()
        await stack.folded(last)
        assert await statuses(stack, "webs/pictures") == {}
        assert len(await statuses(stack, "webs/counted")) == 3
        assert processor.calls.functions == {}


async def test_a_changed_class_is_a_changed_index(case: Case, versions: Versions) -> None:
    last = await case.begin(versions.load())
    field = ("    replicas: int = 1\n", "    replicas: int = 1\n    paused: bool = False\n")
    async with case.running(versions.load(field)) as stack:
        of_class = {"webs/pictures", "webs/counted", "webs/images", "webs/names"}  # the indices look for its objects
        assert {row["name"] for row in await stack.rows(backfills)} == of_class
        processor = stack.start()
        await stack.folded(last)
        assert processor.calls.functions == {"webs/pictures": 3, "webs/counted": 3}
    container = ("    image: str\n\nclass PodSpec", "    image: str\n    command: list[str] = []\n\nclass PodSpec")
    async with case.running(versions.load(field, container)) as stack:
        rows = await stack.rows(backfills)
        assert {row["name"] for row in rows if row["kind"] == "index"} == {"webs/images", "webs/names"}


async def test_handlers_that_are_removed_leave_nothing_behind(case: Case, versions: Versions) -> None:
    last = await case.begin(versions.load())
    source = ("@op.index\ndef images", "def images"), ("@op.view\ndef pictures", "def pictures")
    async with case.running(versions.load(*source)) as stack:
        processor = stack.start()
        await stack.folded(last)
        assert {row["index"] for row in await stack.rows(index_entries)} == {"webs/names"}
        assert {row["index"] for row in await stack.rows(key_versions)} == {"webs/names"}
        assert {row["view"] for row in await stack.rows(dependencies)} == {"webs/counted"}
        assert {row["view"] for row in await stack.rows(levels)} == {"webs/counted"}
        assert {(row["kind"], row["name"]) for row in await stack.rows(handlers)} == {
            ("index", "webs/names"),
            ("view", "webs/counted"),
            ("reconcile", "webs/counted"),
        }
        assert processor.calls.functions == {}


async def test_changed_reconcile_functions_are_asked_again_where_there_is_drift_and_nowhere_else(
    case: Case, versions: Versions
) -> None:
    await case.begin(versions.load())
    async with case.running(versions.load()) as stack:
        last = await stack.tell(web("shop0", 20_000, replicas=3))
        stack.start()
        await stack.folded(last)
        assert await stack.intents("pending") == [("apply", "pods/default/shop0-2")]
    renamed = ('f"{web.metadata.name}-{number}"', 'f"{web.metadata.name}-x{number}"')
    async with case.running(versions.load(renamed)) as stack:
        assert await stack.intents("superseded") == [("apply", "pods/default/shop0-2")]
        processor = stack.start()
        await stack.folded(last)
        assert await stack.intents("pending") == [("apply", "pods/default/shop0-x2")]
        assert processor.calls.functions == {"webs/counted": 1, "webs/fill": 1}
        (level,) = [row for row in await stack.rows(levels) if row["view"] == "webs/counted" and row["drift"]]
        assert (level["status"], level["round"]) == ("settling", 2)


async def test_a_view_that_comes_back_goes_on_with_its_rounds(case: Case, versions: Versions) -> None:
    """Or its first round would have the idempotency keys of the rounds that it had before."""
    await case.begin(versions.load())
    async with case.running(versions.load()) as stack:
        last = await stack.tell(web("shop0", 20_000, replicas=3))
        stack.start()
        await stack.folded(last)
    gone = ("@op.view\ndef counted", "def counted"), ("@op.reconcile(counted)\ndef fill", "def fill")
    async with case.running(versions.load(*gone)) as stack:
        assert await stack.intents() == [("apply", "pods/default/shop0-2")]
        assert await stack.intents("superseded") == [("apply", "pods/default/shop0-2")]
    async with case.running(versions.load()) as stack:
        stack.start()
        await stack.folded(last)
        rounds = {row["state"]: row["round"] for row in await stack.rows(intents)}
        assert rounds == {"superseded": 1, "pending": 2}


async def test_each_of_two_processors_decides_on_all_that_changed_code_gives(
    nats_server: NatsServer, postgres_url: str, versions: Versions
) -> None:
    case = Case(nats_server.url, postgres_url)
    last = await case.begin(versions.load(), shops=10, pods=3)
    changed = versions.load(UPPER)
    async with case.running(changed) as stack:
        stack.start("one")
        await stack.start_more("two")
        await stack.tell(web("shop0", 20_000, replicas=3, image="A"))
        await stack.folded(last + 1)
        assert await values(stack, "webs/images") == ['"A"'] * 30
        assert (await statuses(stack, "webs/pictures"))["shop0"] == "in_sync"


VERSIONS: Final = (
    (),
    (("yield owner, pod.spec.containers[0].image", "yield owner._replace(uid=pod.metadata.name), pod.metadata.name"),),
    (("@op.index\ndef images", '@op.index(labels={"app": "web"})\ndef images'),),
    (("yield owner, pod.metadata.name", "yield owner, pod.metadata.name.upper()"),),
)

_operators: dict[int, Operator] = {}

changes = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from(["a", "b", "gone"]),
        st.sampled_from(["", "one", "two"]),
        st.sampled_from(["web", "db"]),
    ),
    max_size=20,
)


def operator_of(version: int) -> Operator:
    if not _operators:
        versions = Versions(Path(tempfile.mkdtemp()))
        _operators.update({number: versions.load(*each) for number, each in enumerate(VERSIONS)})
    return _operators[version]


def records_of(given_changes: Sequence[tuple[int, str, str, str]]) -> list[LoggedRecord]:
    records: list[Any] = []
    for number, (name, image, owner, app) in enumerate(given_changes, start=1):
        seen = pod(f"pod{name}", number, owner=owner, image=image, labels={"app": app})
        records.append(deleted(seen, number) if image == "gone" else seen)
    return logged(records)


async def ran(folder: Path, name: str, versions: Sequence[tuple[int, Sequence[LoggedRecord], bool]]) -> list[Any]:
    """Entries and objects after each version has folded its records, or was killed before it wrote any."""
    url = f"sqlite:///{folder / name}.db"
    await migrate(url)
    async with await Database.open(url, is_scratch=True) as database:
        for version, records, is_killed in versions:
            program = Program([operator_of(version)])
            scope = await open_scope(
                database,
                cluster=Cluster("c"),
                application=Application("webs"),
                partitions=4,
                stream_created="s",
                fingerprint=program.fingerprint,
                code=program.handlers,
            )
            engine = Engine(SqlTables(database, scope), program, patience=None)
            await engine.load(await Leases(database, scope, owner=f"{name}{version}").tend())
            if is_killed:
                continue
            engine.fold(records)
            await engine.flush()
        async with database.reading() as connection:
            entries = (await connection.execute(index_entries.select())).all()
            held = (await connection.execute(objects.select())).all()
    return [sorted(map(tuple, entries)), sorted(map(tuple, held))]


@settings(max_examples=examples(15), deadline=None)
@given(changes, changes, changes, st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_invariant_3_tables_of_changed_code_equal_those_that_it_folds_from_the_beginning(
    first: list[Any], second: list[Any], third: list[Any], codes: list[int]
) -> None:
    records = records_of([*first, *second, *third])
    cuts = len(first), len(first) + len(second)
    versions = [
        (codes[0], records[: cuts[0]], False),
        (codes[1], records[cuts[0] : cuts[1]], False),
        (codes[2], (), True),
        (codes[3], records[cuts[1] :], False),
    ]
    with tempfile.TemporaryDirectory() as folder:
        changed = asyncio.run(ran(Path(folder), "changed", versions))
        scratch = asyncio.run(ran(Path(folder), "scratch", [(codes[3], records, False)]))
    assert changed == scratch
