"""Tests of the operator: `pytest examples/renders`. The farm is a fake in this process."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import renders
from levelog.testing import Simulation
from renders import Render, Settings, follow, op


class Farm:
    """Jobs at the farm, by their ids; each look at one renders a frame of its ten."""

    def __init__(self) -> None:
        self.frames: dict[str, int] = {}
        self.asked: list[str] = []
        self.is_broken = False
        self.is_away = False

    async def ask(self, _: Settings, method: str, path: str, __: Any = None) -> Any:
        if self.is_away:
            raise ConnectionError("the farm is away")
        self.asked.append(f"{method} {'/'.join(path.split('/')[3:]) or 'job'}")
        job = path.split("/")[2]
        if method == "PUT":
            self.frames.setdefault(job, 0)
            return {"id": job}
        if method == "GET":
            self.frames[job] += 1
        state = "failed" if self.is_broken else "done" if self.frames[job] == 10 else "rendering"
        return {"state": state, "frames": self.frames[job], "message": "no such scene"}


@pytest.fixture
def farm(monkeypatch: pytest.MonkeyPatch) -> Farm:
    found = Farm()
    monkeypatch.setattr(renders, "ask", found.ask)
    return found


@pytest.fixture
def simulation(farm: Farm) -> Iterator[Simulation]:
    assert not farm.asked
    with Simulation(op) as simulation:
        simulation.call_through(follow)
        simulation.apply(render())
        simulation.run()
        yield simulation


def render(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "film", "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Render", "metadata": metadata, "spec": {"scene": "forest", **spec}}


def phase(simulation: Simulation) -> str:
    [found] = simulation.objects(Render)
    shown: str = found["status"]["phase"]
    return shown


def test_a_job_is_started_once_and_followed_until_it_is_done(farm: Farm, simulation: Simulation) -> None:
    assert farm.asked == ["PUT job"]
    assert phase(simulation) == "Rendering"
    simulation.advance(timedelta(minutes=5))
    assert farm.asked == ["PUT job", *["GET job"] * 10]
    assert phase(simulation) == "Done"
    assert simulation.level("follow", "default", "film").status == "in_sync"


def test_a_paused_render_pauses_its_job_and_goes_on_with_the_same_one(farm: Farm, simulation: Simulation) -> None:
    simulation.advance(timedelta(seconds=30))
    simulation.apply(render(paused=True))
    simulation.advance(timedelta(hours=1))
    assert farm.asked == ["PUT job", *["GET job"] * 3, "POST pause"]
    simulation.apply(render(paused=False))
    simulation.advance(timedelta(minutes=5))
    assert farm.asked[5:] == ["GET job"] * 7
    assert len(farm.frames) == 1
    assert phase(simulation) == "Done"


def test_a_farm_that_is_away_is_asked_again_and_one_that_refuses_is_not(farm: Farm, simulation: Simulation) -> None:
    farm.is_away = True
    simulation.advance(timedelta(minutes=1))
    assert simulation.level("follow", "default", "film").status == "settling"
    farm.is_away, farm.is_broken = False, True
    simulation.advance(timedelta(minutes=2))
    level = simulation.level("follow", "default", "film")
    assert (level.status, "no such scene" in level.reason) == ("failed", True)
    asked = len(farm.asked)
    simulation.advance(timedelta(hours=1))
    assert len(farm.asked) == asked
