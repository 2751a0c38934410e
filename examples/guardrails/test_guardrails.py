"""Tests of the operator, without a server: `pytest examples/guardrails`."""

from typing import Any

import pytest

from guardrails import SIZE, SIZES, Namespace, Policy, Quota, op
from levelog.testing import Simulation


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def policy(name: str, *, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"podSelector": {}},
    }


def test_a_bare_namespace_is_reported_and_left_alone() -> None:
    with Simulation(op) as simulation:
        simulation.apply(namespace("team-b"))
        simulation.run()
        level = simulation.level("findings", "", "team-b")
        assert level.status == "drifting"
        assert level.drift.missing == {"ResourceQuota", "NetworkPolicy"}
        assert simulation.intents == []


def test_a_policy_closes_its_finding_for_its_own_namespace_only() -> None:
    with Simulation(op) as simulation:
        simulation.apply(namespace("team-a"))
        simulation.apply(namespace("team-b"))
        simulation.run()
        before = simulation.calls["findings"]
        simulation.apply(policy("default-deny", namespace="team-a"))
        simulation.run()
        assert simulation.level("findings", "", "team-a").drift.missing == {"ResourceQuota"}
        assert simulation.level("findings", "", "team-b").drift.missing == {"ResourceQuota", "NetworkPolicy"}
        assert simulation.calls["findings"] == before + 1
        simulation.delete(Policy, "default-deny", namespace="team-a")
        simulation.run()
        assert "NetworkPolicy" in simulation.level("findings", "", "team-a").drift.missing


@pytest.mark.parametrize("size", SIZES)
def test_a_label_asks_for_a_quota(size: str) -> None:
    with Simulation(op) as simulation:
        simulation.apply(namespace("team-a", **{SIZE: size}))
        simulation.run()
        [quota] = simulation.objects(Quota)
        assert quota["spec"]["hard"] == SIZES[size]
        assert simulation.level("quotas", "", "team-a").status == "in_sync"
        assert simulation.level("findings", "", "team-a").drift.missing == {"NetworkPolicy"}


def test_the_quota_follows_the_label_and_goes_with_it() -> None:
    with Simulation(op) as simulation:
        simulation.apply(namespace("team-a", **{SIZE: "small"}))
        simulation.run()
        simulation.apply(namespace("team-a", **{SIZE: "large"}))
        simulation.run()
        [quota] = simulation.objects(Quota)
        assert quota["spec"]["hard"] == SIZES["large"]
        simulation.apply(namespace("team-a"))
        simulation.run()
        assert simulation.objects(Quota) == []


def test_a_quota_of_somebody_else_is_not_touched() -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "theirs", "namespace": "team-a"},
        "spec": {"hard": {"pods": "3"}},
    }
    with Simulation(op) as simulation:
        simulation.apply(namespace("team-a"))
        simulation.apply(theirs)
        simulation.run()
        assert simulation.level("quotas", "", "team-a").status == "in_sync"
        assert simulation.intents == []


def test_another_label_wakes_only_the_view_that_reads_labels() -> None:
    with Simulation(op) as simulation:
        simulation.apply(namespace("team-a"))
        simulation.run()
        before = dict(simulation.calls)
        simulation.apply(namespace("team-a", owner="somebody"))
        simulation.run()
        assert simulation.calls == {**before, "quotas": before["quotas"] + 1}
        assert simulation.objects(Namespace)
