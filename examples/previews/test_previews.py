"""Tests of the operator, without a server: `pytest examples/previews`. The time is the test's own."""

from datetime import timedelta
from typing import Any

from levelog.testing import Simulation
from previews import Preview, op


def preview(*, hours: int) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Preview",
        "metadata": {"name": "pr-7", "namespace": "default"},
        "spec": {"ttlSeconds": hours * 3600},
    }


def test_a_preview_says_when_it_ends_and_then_is_gone() -> None:
    with Simulation(op) as simulation:
        begin = simulation.now
        simulation.apply(preview(hours=2))
        simulation.run()
        [shown] = simulation.objects(Preview)
        assert shown["status"]["expiresAt"] == (begin + timedelta(hours=2)).isoformat()
        simulation.advance(timedelta(minutes=119))
        assert simulation.level("lives", "default", "pr-7").status == "in_sync"
        simulation.advance(timedelta(minutes=1))
        assert simulation.objects(Preview) == []


def test_nothing_is_called_before_the_end() -> None:
    with Simulation(op) as simulation:
        simulation.apply(preview(hours=24))
        simulation.run()
        before = dict(simulation.calls)
        for _ in range(23):
            simulation.advance(timedelta(hours=1))
        assert simulation.calls == before


def test_a_longer_ttl_moves_the_end() -> None:
    with Simulation(op) as simulation:
        simulation.apply(preview(hours=1))
        simulation.run()
        simulation.advance(timedelta(minutes=30))
        simulation.apply(preview(hours=3))
        simulation.run()
        simulation.advance(timedelta(minutes=31))
        assert len(simulation.objects(Preview)) == 1
        simulation.advance(timedelta(hours=2))
        assert simulation.objects(Preview) == []


def test_a_ttl_that_is_over_already_deletes_at_once() -> None:
    with Simulation(op) as simulation:
        simulation.apply(preview(hours=3))
        simulation.run()
        simulation.advance(timedelta(hours=2))
        simulation.apply(preview(hours=1))
        simulation.run()
        assert simulation.objects(Preview) == []
