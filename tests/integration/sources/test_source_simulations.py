"""External records in a simulation, folded and read as they are live."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from levelog import External, Index, Level, LevelogError, Operator
from levelog.testing import Simulate
from rigs.kinds import Web


class Branch(External, plural="branches"):
    commit: str


WEB = {"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "main", "namespace": "default"}}


class Git:
    def __init__(self) -> None:
        self.op = op = Operator("git")
        self.given: Sequence[Any] = []

        @op.source(Branch, every=timedelta(seconds=30))
        def branches() -> Sequence[Any]:
            return list(self.given)

        @op.index
        def tips(branch: Branch) -> Iterator[tuple[str, str]]:
            yield branch.name, branch.commit

        @op.view
        def followed(web: Web, tips: Index[str, str]) -> Level[list[str]]:
            return Level(desired=["stale"] if tips.is_stale else [], actual=list(tips[web.metadata.name]))


def actual(simulation: Any) -> tuple[list[str], list[str]]:
    simulation.run()
    level = simulation.level("followed", "default", "main")
    return level.actual, level.desired


def test_invariant_6_only_what_reads_a_record_wakes_for_it(simulate: Simulate) -> None:
    git = Git()
    simulation = simulate(git.op)
    simulation.apply(WEB)
    assert actual(simulation) == ([], [])
    simulation.observe(Branch, [Branch(name="main", commit="1"), Branch(name="dev", commit="1")])
    assert actual(simulation) == (["1"], [])
    calls = simulation.calls["followed"]
    simulation.observe(Branch, [Branch(name="main", commit="1"), Branch(name="dev", commit="2")])
    simulation.observe(Branch, [Branch(name="main", commit="1")])
    assert actual(simulation) == (["1"], [])
    assert simulation.calls["followed"] == calls
    simulation.observe(Branch, [])
    assert actual(simulation) == ([], [])


def test_a_source_that_fails_makes_its_records_stale_and_keeps_them(simulate: Simulate) -> None:
    git = Git()
    simulation = simulate(git.op)
    simulation.apply(WEB)
    simulation.observe(Branch, [Branch(name="main", commit="1")])
    simulation.fail_source(Branch, "away")
    assert actual(simulation) == (["1"], ["stale"])
    simulation.advance(timedelta(hours=1))
    assert actual(simulation) == (["1"], ["stale"])
    simulation.observe(Branch, [Branch(name="main", commit="2")])
    assert actual(simulation) == (["2"], [])


def test_a_source_is_called_when_the_test_asks(simulate: Simulate) -> None:
    git = Git()
    simulation = simulate(git.op)
    simulation.apply(WEB)
    git.given = [Branch(name="main", commit="1")]
    assert actual(simulation) == ([], [])
    simulation.poll(Branch)
    assert actual(simulation) == (["1"], [])
    git.given = 7  # type: ignore[assignment]
    simulation.poll(Branch)
    assert actual(simulation) == (["1"], ["stale"])


def test_what_could_not_be_recorded_is_told_to_the_test(simulate: Simulate) -> None:
    simulation = simulate(Git().op)
    with pytest.raises(LevelogError, match="Branch 'main' is there more than once"):
        simulation.observe(Branch, [Branch(name="main", commit="1")] * 2)

    class Other(External, plural="others"):
        pass

    with pytest.raises(LevelogError, match="no source gives the records of Other; those with a source: Branch"):
        simulation.observe(Other, [])
