"""Levels of other parents: looked up by a view, and of children that are parents themselves."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from levelog import Level, Manifest, Operator, Resource, Struct
from levelog.conditions import Condition
from levelog.levels import Levels
from levelog.testing import Simulation
from rigs.kinds import Pod, manifest
from rigs.simulated import run_with, simulated
from rigs.typed import Web

HOUR: Final = timedelta(hours=1)


class ShopSpec(Struct):
    replicas: int = 1


class Status(Struct):
    conditions: tuple[Condition, ...] = ()


class Shop(Resource, group="example.com", version="v1", plural="shops"):
    spec: ShopSpec
    status: Status = Status()


class BoardSpec(Struct):
    web: str


class Board(Resource, group="example.com", version="v1", plural="boards"):
    spec: BoardSpec


def made() -> Operator:
    op = Operator("shops")

    @op.children(Shop, of=Web)
    def webs(shop: Shop) -> Iterator[Manifest]:
        for n in range(shop.spec.replicas):
            yield {
                "apiVersion": "example.com/v1",
                "kind": "Web",
                "metadata": {"name": f"{shop.metadata.name}-{n}"},
                "spec": {"replicas": 1},
            }

    @op.children(Web, of=Pod)
    def pods(web: Web) -> Iterator[Manifest]:
        for n in range(web.spec.replicas):
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{web.metadata.name}-{n}"},
                "spec": {"containers": [{"name": "web", "image": "a"}]},
            }

    @op.view(levels_of=[Web])
    def shown(board: Board, levels: Levels) -> Level[dict[str, str]]:
        found = levels.of(Web, board.spec.web)
        return Level(desired={}, actual={view: each.status for view, each in found.items()})

    op.conditions(Shop)
    return op


class Chain(Resource, group="example.com", version="v1", plural="chains"):
    spec: ShopSpec
    status: Status = Status()


def chained() -> Operator:
    """Shops that a chain has."""
    op = made()

    @op.children(Chain, of=Shop)
    def shops(chain: Chain) -> Iterator[Manifest]:
        for n in range(chain.spec.replicas):
            yield manifest("Shop", f"c{n}", replicas=1)

    return op


def condition(simulation: Simulation, kind: str = "Ready", name: str = "shop") -> dict[str, Any]:
    [found] = [each for each in simulation.objects(Shop) if each["metadata"]["name"] == name]
    return next(each for each in found["status"]["conditions"] if each["type"] == kind)


def shown(simulation: Simulation) -> Any:
    return simulation.level("shown", "default", "board").actual


def test_a_grandchild_counts_and_a_child_that_goes_does_not_any_more() -> None:
    op = chained()
    op.conditions(Chain, name="chained")

    def ready(simulation: Simulation) -> dict[str, Any]:
        [found] = simulation.objects(Chain)
        return next(each for each in found["status"]["conditions"] if each["type"] == "Ready")

    with Simulation(op) as simulation:
        simulation.refuse(403, target="pods/default/c1-0-0", times=1)
        run_with(simulation, manifest("Chain", "chain", replicas=2))
        assert simulation.level("webs", "default", "c1").status == "in_sync", "its webs are as it wants them"
        for stalled in (condition(simulation, "Stalled", "c1"), ready(simulation)):
            assert stalled["message"].startswith("pods of webs.example.com/default/c1-0: ")
            assert "403" in stalled["message"]
        assert condition(simulation, "Stalled", "c1")["status"] == "True"
        assert (ready(simulation)["status"], condition(simulation, name="c0")["status"]) == ("False", "True")
        assert simulation.events == [], "that is told on the web, if it has conditions"
        simulation.advance(HOUR)
        assert condition(simulation, name="c1")["message"] == "in sync: webs; children: 1"
        simulation.refuse(403, target="pods/default/c1-0-0", times=50)
        simulation.delete(Pod, "c1-0-0")
        simulation.run()
        assert ready(simulation)["status"] == "False"
        run_with(simulation, manifest("Chain", "chain", replicas=1))
        assert ready(simulation)["message"] == "in sync: shops; children: 2"


def test_a_view_reads_the_levels_of_wanted_children_and_of_theirs_and_wakes_for_each() -> None:
    op = chained()

    @op.view
    def tree(chain: Chain, levels: Levels) -> Level[dict[str, dict[str, list[str]]]]:
        found = {
            shop: {web: [f"{view} {each.status}" for view, each in of_web.items()] for web, of_web in below.items()}
            for shop, of_shop in levels.children().items()
            for below in [of_shop.children()]
        }
        return Level(desired={}, actual=found)

    with Simulation(op) as simulation:
        simulation.refuse(403, target="pods/default/c1-0-0", times=1)
        run_with(simulation, manifest("Chain", "chain", replicas=2))
        place = "example.com/default"
        assert simulation.level("tree", "default", "chain").actual == {
            f"shops.{place}/c0": {f"webs.{place}/c0-0": ["pods in_sync"]},
            f"shops.{place}/c1": {f"webs.{place}/c1-0": ["pods failed"]},
        }
        simulation.advance(HOUR)
        calls = simulation.calls["tree"]
        assert simulation.level("tree", "default", "chain").actual[f"shops.{place}/c1"] == {
            f"webs.{place}/c1-0": ["pods in_sync"]
        }
        run_with(simulation, manifest("Web", "other"))
        assert simulation.calls["tree"] == calls, "no child of its"
        run_with(simulation, manifest("Chain", "chain", replicas=1))
        assert list(simulation.level("tree", "default", "chain").actual) == [f"shops.{place}/c0"]


def test_levels_that_are_looked_up_undeclared_fail_the_level_with_what_to_write() -> None:
    other = Operator("others")

    @other.view
    def undeclared(board: Board, levels: Levels) -> Level[int]:
        return Level(desired=0, actual=len(levels.of(Web, "one")))

    @other.view
    def webs(web: Web) -> Level[int]:
        return Level(desired=0, actual=0)

    with simulated(other, manifest("Board", "board", web="one")) as simulation:
        assert "write @op.view(levels_of=[Web])" in simulation.level("undeclared", "default", "board").reason
