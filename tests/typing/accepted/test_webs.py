"""Tests of an operator, as users write them."""

from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from levelog import Drift, Operator, Resource
from levelog.testing import SeenIntent, SeenLevel, Simulate, Simulation

op = Operator("webs")


class Pod(Resource, version="v1", plural="pods"):
    pass


def with_a_simulation() -> None:
    with Simulation(op, echo=False, now=datetime(2026, 1, 1, tzinfo=UTC)) as simulation:
        created = simulation.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})
        assert_type(created, dict[str, Any])
        simulation.echo = True
        simulation.run()
        simulation.advance(timedelta(minutes=1))
        level = simulation.level("pods", "default", "a")
        assert_type(level, SeenLevel)
        assert_type(level.drift, Drift)
        assert_type(level.status, str)
        assert_type(simulation.intents, list[SeenIntent])
        assert_type(simulation.calls["converge"], int)
        assert_type(simulation.objects(Pod), list[dict[str, Any]])
        assert_type(simulation.now, datetime)
        simulation.refuse(409, target="pods/default/a", times=1)
        simulation.patch_status(Pod, "a", {"phase": "Running"})
        simulation.delete(Pod, "a", namespace="default")


def with_the_fixture(simulate: Simulate) -> None:
    simulation = simulate(op, echo=False)
    assert_type(simulation, Simulation)
    simulation.run()
