"""Tests of the operator: `pytest examples/databases`. Its client asks the cluster of a simulation."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

import databases
from levelog import Resource
from levelog.compat import kopf
from levelog.testing import Simulation

T = TypeVar("T")
op = kopf.operator_in(databases)


class Database(Resource, group="example.com", version="v1", plural="databases"):
    pass


class ConfigMap(Resource, version="v1", plural="configmaps"):
    data: dict[str, str] | None = None


class Claim(Resource, version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim"):
    pass


@pytest.fixture
def simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulation]:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    with Simulation(op, kubeconfig=tmp_path / "kubeconfig") as simulation:
        simulation.call_through(*{effect.origin for effect in op.effects.values()})
        yield simulation


def apply(simulation: Simulation, **spec: Any) -> None:
    metadata = {"name": "orders", "namespace": "default"}
    spec = {"server": "server-0", "gigabytes": 2, "users": ["ann", "bob"], "backups": True, **spec}
    simulation.apply({"apiVersion": "example.com/v1", "kind": "Database", "metadata": metadata, "spec": spec})
    simulation.run()


def serve(simulation: Simulation) -> None:
    metadata = {"name": "server-0", "namespace": "default", "labels": {"app": "database-server"}}
    pod = {"spec": {"containers": [{"name": "server", "image": "server:1"}]}}
    simulation.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **pod})
    simulation.run()


def names(simulation: Simulation) -> list[str]:
    """Of the ConfigMaps."""
    return sorted(found["metadata"]["name"] for found in simulation.objects(ConfigMap))


def storage(simulation: Simulation) -> list[tuple[str, str]]:
    claims = simulation.objects(Claim)
    return [(each["metadata"]["name"], each["spec"]["resources"]["requests"]["storage"]) for each in claims]


def status(simulation: Simulation) -> dict[str, Any]:
    [found] = simulation.objects(Database)
    return dict(found.get("status", {}))


def reasons(simulation: Simulation) -> list[str]:
    return sorted(event.reason for event in simulation.events)


def test_a_database_waits_for_its_server(simulation: Simulation) -> None:
    apply(simulation)
    assert storage(simulation) == []
    level = simulation.level("created", "default", "orders")
    assert level.reason.endswith("attempt 2: TemporaryError: the server server-0 is not there yet")
    serve(simulation)
    simulation.advance(timedelta(seconds=6))
    assert storage(simulation) == [("orders-data", "2Gi")]
    assert status(simulation)["phase"] == "Ready"
    assert status(simulation)["created"] == {"claim": "orders-data", "host": "server-0.default"}


def test_users_come_and_go(simulation: Simulation) -> None:
    serve(simulation)
    apply(simulation)
    assert names(simulation) == ["orders-ann", "orders-bob", "orders-connection"]
    apply(simulation, users=["bob", "cid"])
    assert names(simulation) == ["orders-bob", "orders-cid", "orders-connection"]
    assert reasons(simulation) == ["Granted", "Granted", "Granted", "Revoked"]


def test_a_claim_grows_and_never_shrinks(simulation: Simulation) -> None:
    serve(simulation)
    apply(simulation)
    apply(simulation, gigabytes=5)
    assert storage(simulation) == [("orders-data", "5Gi")]
    apply(simulation, gigabytes=1)
    assert storage(simulation) == [("orders-data", "5Gi")]
    level = simulation.level("resized_spec_gigabytes", "default", "orders")
    assert (level.status, "1 GB are less than 5" in level.reason) == ("failed", True)


def test_backups_are_made_each_hour(simulation: Simulation) -> None:
    serve(simulation)
    apply(simulation)
    simulation.advance(timedelta(hours=3, minutes=2))
    assert status(simulation)["backups"] == 4
    apply(simulation, backups=False)
    simulation.advance(timedelta(hours=3))
    assert status(simulation)["backups"] == 4


def test_a_database_stays_as_long_as_somebody_wants_it_kept(simulation: Simulation) -> None:
    serve(simulation)
    apply(simulation)
    simulation.patch(Database, "orders", {"metadata": {"annotations": {databases.KEEP: "ann"}}})
    simulation.delete(Database, "orders")
    simulation.advance(timedelta(minutes=1))
    assert names(simulation) == ["orders-ann", "orders-bob", "orders-connection"]
    simulation.patch(Database, "orders", {"metadata": {"annotations": {databases.KEEP: None}}})
    simulation.advance(timedelta(minutes=1))
    assert simulation.objects(Database) == []
    assert names(simulation) == ["orders-last"]
    assert storage(simulation) == []
