"""A fold and a decision in one transaction come to what they come to in two."""

import re
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from levelog import Index, Intent, Level, Operator, Owner, Resource, Struct, apply, patch_status
from levelog.errors import Unavailable
from levelog.levels import Levels
from levelog.wire.objects import Application, Cluster
from levelog.wire.records import ControlRecord, LoggedRecord, ObjectDeleted, ObjectSeen
from levelog_processors.decide import functions
from levelog_processors.engine import Engine
from levelog_processors.fold.batches import Folded
from levelog_processors.program import Program
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.connect.database import Database
from levelog_store.decide import decisionwrites
from levelog_store.decide.decisions import Sendable
from levelog_store.dialects import Timestamp
from levelog_store.fold.levelwrites import retry_levels
from levelog_store.owners.leases import Leases
from levelog_store.owners.scopes import open_scope
from levelog_store.rows import Scope, ViewParent
from levelog_store.tables import intents, leases, metadata, processors, scopes
from rigs.intents import intent
from rigs.postgres import PostgresDatabases
from rigs.run.examples import examples
from rigs.webs import PODS, WEBS, deleted, lists_done, logged, pod, receipt, web

PARTITIONS: Final = 2
_TIME: Final = re.compile(r"20\d\d-\d\d-\d\dT[\d:.]+Z|PT[\d.]+S")
NAMES: Final = ("a", "b")
PARENTS: Final = tuple(f"webs.example.com/default/{name}" for name in NAMES)
VIEWS: Final = ("webs/pods", "webs/shown", "webs/summary")
LONG: Final = 10_000_000
"""So many numbers take longer than `PATIENCE` to add on any machine."""
SEVERAL: Final = 10
Told: TypeAlias = ObjectSeen | ObjectDeleted | ControlRecord


class WebSpec(Struct):
    replicas: int = 0
    image: str = ""


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec


class Pod(Resource, version="v1", plural="pods"): ...


def operator() -> Operator:
    op = Operator("webs")

    @op.index
    def pods_by_web(pod: Pod) -> dict[Owner, str]:
        if pod.metadata.name == "slow":
            sum(range(LONG))
        owner = pod.metadata.controlled_by(Web)
        return {owner: pod.metadata.name} if owner else {}

    @op.view
    def pods(web: Web, pods_by_web: Index[Owner, str]) -> Level[list[str]]:
        names = [f"{web.metadata.name}-{number}" for number in range(web.spec.replicas)]
        return Level(names, sorted(pods_by_web[web.as_owner]))

    @op.reconcile(pods, writes={Pod: ["apply"]})
    def start(web: Web, level: Level[list[str]]) -> Iterator[Intent]:
        for name in sorted({*level.desired} - {*level.actual}):
            yield apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}})

    @op.view
    def shown(web: Web, now: datetime) -> Level[str]:
        if web.spec.image == "slow":
            sum(range(LONG))
        return Level(web.spec.image, "a", recheck_at=now + timedelta(days=1) if web.spec.image == "y" else None)

    @op.reconcile(shown)
    def show(web: Web) -> Iterator[Intent]:
        yield patch_status(web, {"image": web.spec.image})

    @op.view
    def summary(web: Web, levels: Levels) -> Level[dict[str, str]]:
        return Level({name: each.status for name, each in levels.items()}, {})

    return op


class Stepped:
    """One engine on a database of its own."""

    def __init__(self, database: Database, scope: Scope, engine: Engine) -> None:
        self.database = database
        self._scope = scope
        self.engine = engine
        self._sequence = 0

    async def hold(self) -> None:
        leases = Leases(self.database, self._scope, owner="test", duration=timedelta(hours=1))
        await self.engine.hold(await leases.tend())

    def placed(self, records: Sequence[Told], *, partition: int = 0) -> list[LoggedRecord]:
        found = logged(records, first=self._sequence + 1, partitions=PARTITIONS, partition=partition)
        self._sequence += len(found)
        return found

    async def in_two(self, placed: list[LoggedRecord], left: Collection[ViewParent] = ()) -> None:
        await self.engine.fold(placed)
        await self.engine.decide(leaving=left)

    async def in_one(self, placed: list[LoggedRecord], left: Collection[ViewParent] = ()) -> None:
        def leaving(_: Folded) -> Collection[ViewParent]:
            return left

        assert self.engine.may_do_both(placed)
        await self.engine.fold_and_decide(placed, leaving)

    async def retry(self, changed: Sequence[tuple[str, str, int, str]]) -> None:
        """As `levelog retry` does, right before the rest of what happens at once."""
        named = [(VIEWS[number], PARENTS[NAMES.index(name)]) for kind, name, number, _ in changed if kind == "retry"]
        await retry_levels(self.database, self._scope, named)

    async def rows(self) -> dict[str, list[Any]]:
        """All that does not differ from one database to the next: no times, and no leases."""
        found: dict[str, list[Any]] = {}
        async with self.database.reading() as connection:
            for table in metadata.sorted_tables:
                if table in (leases, processors, scopes):
                    continue
                columns = [
                    each for each in table.c if not isinstance(each.type, Timestamp) and each.name != "generation"
                ]
                rows = await connection.execute(select(*columns))
                found[table.name] = sorted(_TIME.sub("then", repr(tuple(row))) for row in rows)
        return found

    async def asked(self) -> list[dict[str, Any]]:
        async with self.database.reading() as connection:
            wanted = select(intents).where(intents.c.state == "pending").order_by(intents.c.key)
            return [dict(row) for row in (await connection.execute(wanted)).mappings()]


@asynccontextmanager
async def engine_on(url: str) -> AsyncGenerator[Stepped]:
    program = Program([operator()])
    async with await Database.open(url, is_scratch=True) as database:
        async with database.transaction() as connection:
            await connection.run_sync(metadata.create_all)
        scope = await open_scope(
            database,
            cluster=Cluster("cluster"),
            application=Application("webs"),
            partitions=PARTITIONS,
            stream_created="stream",
            fingerprint=program.fingerprint,
        )
        engine = Engine(database, scope, program, patience=None)
        stepped = Stepped(database, scope, engine)
        await stepped.hold()
        try:
            for resource in (WEBS, PODS):
                for partition in range(PARTITIONS):
                    await stepped.in_two(stepped.placed(lists_done(resource, 0), partition=partition))
            yield stepped
        finally:
            await engine.close()


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[tuple[str, str, int, str]], list[ViewParent]]:
    """What happens at once: kind, name, replicas or number, and image; and levels that are left alone then."""
    kinds = st.sampled_from(("web", "web", "pod", "pod", "receipt", "receipt", "no web", "no pod", "retry"))
    one = st.tuples(kinds, st.sampled_from(NAMES), st.integers(0, 2), st.sampled_from("axy"))
    left = st.lists(st.sampled_from([(view, parent) for view in VIEWS for parent in PARENTS]), max_size=2)
    return draw(st.lists(one, min_size=1, max_size=4)), draw(left)


class Watched:
    """Objects with versions, as a watch tells them."""

    def __init__(self) -> None:
        self._version = 0
        self._held: dict[str, ObjectSeen] = {}

    def records(self, changed: Sequence[tuple[str, str, int, str]], asked: Sequence[dict[str, Any]]) -> list[Told]:
        found: list[Told] = []
        for kind, name, number, image in changed:
            if kind == "retry":
                continue
            self._version += 1
            if kind == "web":
                found.append(self._keep(web(name, self._version, replicas=number, image=image)))
            elif kind == "pod":
                found.append(self._keep(pod(f"{name}-{number}", self._version, owner=f"uid-{name}")))
            elif kind == "receipt" and asked:
                row = asked[number % len(asked)]
                if image == "x":
                    found.append(receipt(row, outcome="failed", error="refused"))
                else:
                    found.append(receipt(row, version=self._version))
            elif gone := self._held.pop(name if kind == "no web" else f"{name}-{number}", None):
                found.append(deleted(gone, self._version))
        return found

    def _keep(self, seen: ObjectSeen) -> ObjectSeen:
        self._held[seen.key.name] = seen
        return seen


STORIES: Final = st.lists(changes(), min_size=1, max_size=8)
GONE: Final[list[Any]] = [([("web", "a", 0, "y")], []), ([("no web", "a", 0, "y")], [("webs/shown", PARENTS[0])])]
RETRIED: Final[list[Any]] = [([("web", "a", 0, "x")], []), ([("retry", "a", 0, "a"), ("web", "a", 0, "x")], [])]


@settings(max_examples=examples(40), phases=(Phase.explicit, Phase.generate))
@example(story=GONE).via("a write that waits for a level which goes in the pass is superseded after it was read")
@example(story=RETRIED).via("a level is to be tried again, and its parent is folded at once")
@given(story=STORIES)
async def test_one_transaction_leaves_the_same_tables_as_two(story: list[Any], tmp_path_factory: Any) -> None:
    folder: Path = tmp_path_factory.mktemp("passes")
    await leave_the_same(story, f"sqlite:///{folder}/one.db", f"sqlite:///{folder}/two.db")


@settings(max_examples=examples(10), phases=(Phase.explicit, Phase.generate))
@example(story=GONE)
@given(story=STORIES)
async def test_one_transaction_on_postgresql_leaves_the_same_tables_as_two_on_sqlite(
    story: list[Any], tmp_path_factory: Any, postgres: PostgresDatabases
) -> None:
    """Where writes go together that are statements of their own there."""
    folder: Path = tmp_path_factory.mktemp("passes")
    async with postgres.database() as url:
        await leave_the_same(story, url, f"sqlite:///{folder}/two.db")


async def leave_the_same(story: list[Any], in_one: str, in_two: str) -> None:
    """Tell a story to an engine that does all in one transaction, and to one that does it in two."""
    cluster = Watched()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functions, "MOST_COUNTED", timedelta(0))
        async with engine_on(in_one) as one, engine_on(in_two) as two:
            for changed, left in story:
                records = cluster.records(changed, await two.asked())
                await one.retry(changed)
                await two.retry(changed)
                if records:
                    await one.in_one(one.placed(records), left)
                    await two.in_two(two.placed(records), left)
                    rows, others = await one.rows(), await two.rows()
                    assert not [(name, rows[name], others[name]) for name in rows if rows[name] != others[name]]


async def test_a_pass_that_fails_leaves_nothing_and_is_folded_alone_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        raise Unavailable("no")

    async with engine_on(f"sqlite:///{tmp_path}/tables.db") as stepped:
        before = await stepped.rows()
        placed = stepped.placed([web("a", 1, replicas=1)])
        with monkeypatch.context() as patch:
            patch.setattr(decisionwrites, "write_decisions", refuse)
            with pytest.raises(Unavailable):
                await stepped.in_one(placed)
            assert await stepped.rows() == before
            await stepped.hold()
            assert not stepped.engine.may_do_both(placed)
            with pytest.raises(Unavailable):
                await stepped.in_two(placed)
            assert (await stepped.rows())["objects"] != before["objects"]
        await stepped.engine.decide()
        assert len(await stepped.asked()) == 1
        assert stepped.engine.may_do_both(stepped.placed([web("a", 2)]))


@pytest.mark.parametrize("place", ["view", "index"])
async def test_functions_that_are_slow_run_in_no_transaction_that_others_wait_for(place: str, tmp_path: Path) -> None:
    async with engine_on(f"sqlite:///{tmp_path}/tables.db") as stepped:
        version, is_quick = 0, True
        while is_quick and version < SEVERAL:
            version += 1
            is_view = place == "view"
            slow = web("a", version, image="slow", replicas=version) if is_view else pod("slow", version, owner="uid-a")
            await stepped.in_one(stepped.placed([slow]))
            is_quick = stepped.engine.may_do_both(stepped.placed([web("b", 1)]))
        assert 1 < version < SEVERAL, "one that was slow makes nothing slow, and several do"


async def test_who_shares_the_partitions_commits_between_fold_and_decision(tmp_path: Path) -> None:
    """Two passes that lock the keys of a fold, and then those of a decision, could wait for each other."""
    async with engine_on(f"sqlite:///{tmp_path}/tables.db") as stepped:
        placed = stepped.placed([web("a", 1)])
        assert stepped.engine.may_do_both(placed)
        await stepped.engine.hold(
            {partition: epoch for partition, epoch in stepped.engine.epochs.items() if partition == 0}
        )
        await stepped.engine.decide()
        assert not stepped.engine.may_do_both(placed)


class Eager:
    """An actuator that takes all that it may."""

    owner = "actuator"
    lease = timedelta(seconds=30)
    is_writing = False

    def __init__(self) -> None:
        self.begun: list[str] = []

    def choose(self, intents: Sequence[Sendable]) -> Sequence[str]:
        return [each.key for each in intents]

    def begin(self, claimed: Sequence[ClaimedIntent], since: float) -> None:
        self.begun += [each.key for each in claimed]


@pytest.mark.parametrize("is_with_objects", [True, False], ids=["an object changed", "only a receipt came"])
async def test_only_a_pass_whose_commit_waits_for_the_disk_claims_what_it_decides(
    tmp_path: Path, is_with_objects: bool
) -> None:
    async with engine_on(f"sqlite:///{tmp_path}/tables.db") as stepped:
        stepped.engine.decider.claimant = claimant = Eager()
        await stepped.engine.fold(stepped.placed([web("a", 1, replicas=1)]))
        others = [web("b", 2, image="a")] if is_with_objects else [receipt(intent("pods/default/other"))]
        await stepped.in_one(stepped.placed(others))
        pending = [each["key"] for each in await stepped.asked()]
        assert (bool(claimant.begun), bool(pending)) == (is_with_objects, not is_with_objects)
