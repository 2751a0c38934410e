"""Tests of the operator, without a server: `pytest examples/releases`. The branches are the test's own."""

import subprocess
from pathlib import Path
from typing import Any

from levelog.testing import Simulation
from releases import Branch, Git, Release, branches, op


def release(branch: str) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Release",
        "metadata": {"name": "stable", "namespace": "default"},
        "spec": {"branch": branch},
    }


def commit(simulation: Simulation) -> str | None:
    [shown] = simulation.objects(Release)
    found: str | None = shown.get("status", {}).get("commit")
    return found


def test_a_release_shows_the_commit_of_its_branch() -> None:
    with Simulation(op) as simulation:
        simulation.apply(release("main"))
        simulation.observe(Branch, [Branch(name="main", commit="2f1c")])
        simulation.run()
        assert commit(simulation) == "2f1c"
        before = dict(simulation.calls)
        simulation.observe(Branch, [Branch(name="main", commit="2f1c"), Branch(name="dev", commit="77aa")])
        simulation.run()
        assert simulation.calls == before
        simulation.observe(Branch, [])
        simulation.run()
        assert commit(simulation) is None


def test_the_branches_are_those_of_the_repository(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.com"]
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--initial-branch", "main")
    git("commit", "--allow-empty", "--message", "begun")
    git("branch", "feature/x")
    tip = git("rev-parse", "main")
    found = list(branches(Git(repository=str(tmp_path))))
    assert [(branch.name, branch.commit) for branch in found] == [("feature/x", tip), ("main", tip)]
