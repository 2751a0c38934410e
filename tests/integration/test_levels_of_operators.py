"""Levels that are looked up by the names of their views: of another operator, and of views that take levels."""

from collections.abc import Iterator

from levelog import Index, Level, Operator, Resource, Struct
from levelog.conditions import Condition
from levelog.levels import Levels
from levelog.testing import Simulation
from levelog_base.wire.objects import GroupResource, ObjectKey
from levelog_base.wire.records import ObjectSeen
from levelog_processors.engine import Engine
from levelog_processors.tables import SqlTables
from levelog_store.fold.changes import read_causes
from levelog_store.tables import levels as level_rows
from rigs.kinds import manifest
from rigs.leasing import processor
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.simulated import run_with
from rigs.webs import PODS, WEBS, logged, pod, seen, web

NAMES = [f"shop{number}" for number in range(12)]


class Spec(Struct):
    replicas: int = 1
    web: str = ""


class Status(Struct):
    conditions: tuple[Condition, ...] = ()


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: Spec
    status: Status = Status()


class Board(Resource, group="example.com", version="v1", plural="boards"):
    spec: Spec


class Pod(Resource, version="v1", plural="pods"):
    """Only its name is read."""


def webs() -> Operator:
    """Says whether a Web has one replica, and sums that up."""
    op = Operator("webs")

    @op.view
    def size(web: Web) -> Level[int]:
        return Level(1, web.spec.replicas)

    @op.view
    def odd(web: Web) -> Level[bool]:
        return Level(desired=True, actual=web.spec.replicas % 2 == 1)

    @op.view
    def summary(web: Web, levels: Levels) -> Level[dict[str, str]]:
        return Level({}, {name: each.status for name, each in levels.items() if each.status != "in_sync"})

    op.conditions(Web, also=[size])
    return op


def boards(*names: str) -> Operator:
    """Shows levels of the Web that a Board is about."""
    op = Operator("boards")

    @op.view(levels_of=names or ["webs/size", "webs/summary", "webs/conditions"])
    def shown(board: Board, levels: Levels) -> Level[dict[str, str]]:
        return Level({}, {name: each.status for name, each in levels.of(Web, board.spec.web).items()})

    return op


def test_a_view_looks_up_levels_of_another_operator_also_of_views_that_take_levels() -> None:
    with Simulation(webs(), boards()) as simulation:
        run_with(simulation, manifest("Board", "board", web="shop"))
        assert simulation.level("shown", "default", "board").actual == {}
        run_with(simulation, manifest("Web", "shop", replicas=1))
        names = ("webs/size", "webs/summary", "webs/conditions")
        assert simulation.level("shown", "default", "board").actual == dict.fromkeys(names, "in_sync")
        run_with(simulation, manifest("Web", "shop", replicas=2))
        drifts = {"webs/size": "drifting", "webs/summary": "drifting", "webs/conditions": "in_sync"}
        assert simulation.level("shown", "default", "board").actual == drifts
        simulation.delete(Web, "shop")
        simulation.run()
        assert simulation.level("shown", "default", "board").actual == {}


def test_a_class_and_a_name_give_levels_of_the_own_operator_and_of_the_other() -> None:
    op = Operator("boards")

    @op.view
    def mine(web: Web) -> Level[int]:
        return Level(0, 0)

    @op.view(levels_of=[Web, "webs/size", "boards/mine"])
    def shown(board: Board, levels: Levels) -> Level[list[str]]:
        return Level([], sorted(levels.of(Web, board.spec.web)))

    with Simulation(webs(), op) as simulation:
        run_with(simulation, manifest("Board", "board", web="shop"), manifest("Web", "shop"))
        assert simulation.level("shown", "default", "board").actual == ["boards/mine", "mine", "webs/size"]


BOARDS = GroupResource(group="example.com", resource="boards")


def board(age: str, name: str, version: int) -> ObjectSeen:
    key = ObjectKey(group="example.com", resource="boards", namespace="default", name=f"{age}-{name}")
    return seen(key, version, f"uid-{key.name}", {"web": name})


def sizes(*, is_changed: bool) -> Operator:
    """In its changed form it comes to the same."""
    op = Operator("webs")

    def wanted(web: Web) -> Level[int]:
        return Level(1, web.spec.replicas)

    def wanted_anew(web: Web) -> Level[int]:
        return Level(desired=1, actual=int(web.spec.replicas))

    size = wanted_anew if is_changed else wanted
    size.__name__ = "size"
    op.view(size)
    return op


async def test_nobody_acts_on_levels_that_another_processor_has_not_decided_on_since_its_code_changed(
    nats_server: NatsServer, postgres_url: str
) -> None:
    async def settle(*engines: Engine) -> None:
        for engine in engines:
            await engine.notice()
            while (await engine.decide()).has_more:
                pass
            await engine.flush()

    async def of_boards(stack: Processing) -> dict[str, tuple[bytes, int]]:
        rows = [row for row in await stack.rows(level_rows) if row["view"] == "boards/shown"]
        return {row["parent"].rpartition("/")[2]: (row["actual"], row["evaluations"]) for row in rows}

    before = [sizes(is_changed=False), boards("webs/size")]
    async with Processing(nats_server.url, postgres_url, before) as stack:
        stack.start()
        shown = [*(web(name, 1) for name in NAMES), *(board("old", name, 2) for name in NAMES)]
        last = await stack.listed(*shown, version=9, of=[WEBS, BOARDS])
        await stack.folded(last)
        await stack.stop()
        known, in_sync = await of_boards(stack), b'{"webs/size":"in_sync"}'
        assert {actual for actual, _ in known.values()} == {in_sync}
    async with Processing(nats_server.url, postgres_url, [sizes(is_changed=True), boards("webs/size")]) as stack:
        one, other = (processor(stack.database, stack.scope, name) for name in ("one", "other"))
        for leases in (one, other, one, other):
            await leases.tend()
        first, second = (Engine(SqlTables(stack.database, stack.scope), stack.program) for _ in range(2))
        await first.load(await one.tend())
        await second.load(await other.tend())
        young = logged([board("young", name, 10) for name in NAMES], first=last + 1)
        for engine in (first, second):
            engine.fold(young)
        await settle(first)
        found = await of_boards(stack)
        assert {name: found.pop(name) for name in known} == known
        assert {actual for actual, _ in found.values()} == {in_sync, None}, "those of Webs of the other are blocked"
        await settle(second, first, second)
        found = await of_boards(stack)
        assert {name: found.pop(name) for name in known} == known
        assert [actual for actual, _ in found.values()] == [in_sync] * len(NAMES)
        await first.close()
        await second.close()


async def test_what_woke_a_level_is_kept_though_a_level_that_it_looks_up_is_confirmed_in_the_same_batch(
    nats_server: NatsServer, database_url: str
) -> None:
    op = boards("webs/size")

    @op.index
    def pods(pod: Pod) -> Iterator[tuple[str, int]]:
        yield pod.metadata.name, 1

    @op.view
    def staffed(board: Board, pods: Index[str, int]) -> Level[int]:
        return Level(1, len(pods[board.spec.web]))

    async with Processing(nats_server.url, database_url, [sizes(is_changed=False), op]) as stack:
        stack.start()
        last = await stack.listed(web("shop", 1), board("old", "shop", 2), version=9, of=[WEBS, PODS, BOARDS])
        await stack.folded(last)
    async with Processing(nats_server.url, database_url, [sizes(is_changed=True), op]) as stack:
        engine = Engine(SqlTables(stack.database, stack.scope), stack.program)
        await engine.load(await processor(stack.database, stack.scope, "test").tend())
        engine.fold(logged([pod("shop", 10)], first=last + 1))
        decided = {each.wake.view for each in (await engine.decide()).decided}
        assert decided == {"webs/size", "boards/staffed"}
        (waiting,) = engine.state.wakes.pending.values()
        assert last + 1 in read_causes(waiting.causes).sequences
        await engine.close()
