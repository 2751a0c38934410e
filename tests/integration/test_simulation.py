from datetime import timedelta
from typing import Any

import pytest

from levelog.testing import Simulation
from levelog_cli.loading import load_operators
from rigs.processing import WEBS_FILE

[op] = load_operators([WEBS_FILE])
module: Any = __import__("sys").modules[op.views["pods"].function.__module__]


def web(name: str = "shop", *, replicas: int = 3, image: str = "nginx") -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Web",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "image": image},
    }


def test_an_operator_is_tested_without_a_server() -> None:
    with Simulation(op) as simulation:
        simulation.apply(web())
        simulation.run()
        level = simulation.level("pods", "default", "shop")
        assert level.status == "in_sync"
        assert level.actual == {"shop-0": "nginx", "shop-1": "nginx", "shop-2": "nginx"}
        assert [(intent.verb, intent.target, intent.state) for intent in simulation.intents] == [
            ("apply", f"pods/default/shop-{n}", "settled") for n in range(3)
        ]
        assert simulation.calls["converge"] == 1


async def test_it_works_inside_a_running_event_loop() -> None:
    with Simulation(op) as simulation:
        simulation.apply(web(replicas=1))
        simulation.run()
        assert simulation.level("pods", "default", "shop").status == "in_sync"


def test_a_pod_that_is_deleted_by_hand_is_created_again_each_time() -> None:
    with Simulation(op) as simulation:
        simulation.apply(web(replicas=1))
        simulation.run()
        for _ in range(3):
            simulation.delete(module.Pod, "shop-0")
            simulation.run()
            assert simulation.level("pods", "default", "shop").status == "in_sync"
        assert len(simulation.intents) == 4


def test_three_two_three_asks_for_nothing() -> None:
    with Simulation(op) as simulation:
        simulation.apply(web())
        simulation.run()
        before = dict(simulation.calls)
        simulation.apply(web(replicas=2))
        simulation.apply(web(replicas=3))
        simulation.run()
        assert simulation.calls == before


def test_without_echo_a_level_waits_and_decides_nothing() -> None:
    with Simulation(op, echo=False) as simulation:
        simulation.apply(web(replicas=1))
        simulation.run()
        assert simulation.level("pods", "default", "shop").status == "settling"
        simulation.apply(web(replicas=2))
        simulation.run()
        assert [intent.state for intent in simulation.intents] == ["written"]
        simulation.echo = True
        simulation.run()
        assert [intent.state for intent in simulation.intents] == ["settled", "settled"]
        assert simulation.level("pods", "default", "shop").status == "in_sync"


def test_a_refused_write_is_shown_and_a_passing_one_is_tried_again() -> None:
    with Simulation(op) as simulation:
        simulation.refuse(422, target="pods/default/shop-0")
        simulation.refuse(503, target="pods/default/other-0", times=1)
        simulation.apply(web(replicas=1))
        simulation.apply(web("other", replicas=1))
        simulation.run()
        level = simulation.level("pods", "default", "shop")
        assert level.status == "failed"
        assert "refused as told" in level.reason
        assert simulation.level("pods", "default", "other").status == "settling"
        simulation.advance(timedelta(minutes=1))
        assert simulation.level("pods", "default", "other").status == "in_sync"
        assert simulation.level("pods", "default", "shop").status == "failed"


def test_a_deleted_parent_takes_its_level_along() -> None:
    with Simulation(op) as simulation:
        simulation.apply(web())
        simulation.run()
        simulation.delete(module.Web, "shop")
        simulation.run()
        with pytest.raises(KeyError, match="no level for webs"):
            simulation.level("pods", "default", "shop")
        assert simulation.objects(module.Pod) == []
