"""Tests of the operator, without a server: `pytest examples/projects`."""

from datetime import timedelta
from typing import Any

from levelog.testing import Simulate, Simulation
from projects import (
    SEEN,
    ConfigMap,
    Deployment,
    Job,
    Namespace,
    Project,
    ResourceQuota,
    RoleBinding,
    Secret,
    op,
    release,
)


def project(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "atlas"}
    return {"apiVersion": "example.com/v1", "kind": "Project", "metadata": metadata, "spec": {"rotateDays": 7, **spec}}


def begun(simulation: Simulation) -> Simulation:
    simulation.call_through(release)
    simulation.apply(project(members=["ann", "bob"]))
    simulation.run()
    return simulation


def condition(simulation: Simulation, type_: str) -> dict[str, Any]:
    [found] = simulation.objects(Project)
    [one] = [each for each in found["status"]["conditions"] if each["type"] == type_]
    return dict(one)


def test_a_project_is_a_namespace_with_a_quota_and_members(simulate: Simulate) -> None:
    simulation = begun(simulate(op))
    assert "atlas" in [each["metadata"]["name"] for each in simulation.objects(Namespace)]
    assert [each["spec"]["hard"] for each in simulation.objects(ResourceQuota)] == [{"pods": "10"}]
    simulation.apply(project(members=["bob"]))
    simulation.run()
    [binding] = simulation.objects(RoleBinding)
    assert [each["name"] for each in binding["subjects"]] == ["bob"]
    assert condition(simulation, "Ready")["status"] == "True"


def test_a_token_is_rotated_after_its_days_and_not_before(simulate: Simulate) -> None:
    simulation = begun(simulate(op))
    [first] = simulation.objects(Secret)
    simulation.advance(timedelta(days=6))
    assert simulation.objects(Secret)[0]["data"] == first["data"]
    simulation.advance(timedelta(days=1, minutes=1))
    [second] = simulation.objects(Secret)
    assert second["data"] != first["data"]


def test_a_token_that_somebody_edits_is_put_back(simulate: Simulate) -> None:
    simulation = begun(simulate(op))
    [made] = simulation.objects(Secret)
    simulation.patch(Secret, "token", {"data": {"token": "bWluZQ=="}}, namespace="atlas")
    simulation.run()
    assert simulation.objects(Secret)[0]["data"] == made["data"]


def test_a_project_goes_once_its_last_backup_is_done(simulate: Simulate) -> None:
    simulation = begun(simulate(op))
    simulation.delete(Project, "atlas")
    simulation.run()
    [found] = simulation.objects(Project)
    assert found["status"]["backup"] == "Running"
    [job] = simulation.objects(Job)
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["atlas"]
    simulation.patch_status(Job, "last-backup", {"succeeded": 1}, namespace="atlas")
    simulation.run()
    assert not simulation.objects(Project)


def test_deployments_of_projects_roll_when_the_shared_settings_change(simulate: Simulate) -> None:
    simulation = begun(simulate(op))
    for name in ("platform", "other"):
        simulation.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    simulation.apply(settings("a"))
    for namespace in ("atlas", "other"):
        simulation.apply(deployment(namespace))
    simulation.run()
    before = seen(simulation)
    simulation.apply(settings("b"))
    simulation.run()
    after = seen(simulation)
    assert before["atlas"] != after["atlas"]
    assert before["other"] == after["other"] == ""


def settings(proxy: str) -> dict[str, Any]:
    metadata = {"name": "settings", "namespace": "platform"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"proxy": proxy}}


def deployment(namespace: str) -> dict[str, Any]:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "web", "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def seen(simulation: Simulation) -> dict[str, str]:
    """What each Deployment's pods have begun with, by namespace."""
    return {
        each["metadata"]["namespace"]: each["spec"]["template"]["metadata"].get("annotations", {}).get(SEEN, "")
        for each in simulation.objects(Deployment)
    }


def test_the_shared_settings_wake_only_who_reads_them(simulate: Simulate) -> None:
    simulation = begun(simulate(op))
    simulation.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "platform"}})
    simulation.apply(deployment("atlas"))
    simulation.apply(settings("a"))
    simulation.run()
    before = dict(simulation.calls)
    simulation.apply({**settings("a"), "metadata": {"name": "others", "namespace": "platform"}})
    simulation.run()
    assert simulation.calls == before
    assert len(simulation.objects(ConfigMap)) == 2
