"""Children of a parent, in a simulation: created in order, kept as their manifests say, deleted last and in reverse."""

from collections.abc import Iterator
from typing import Any

import pytest

from levelog import Manifest, Operator, Resource
from levelog.testing import Simulation
from rigs.simulated import run_with, simulated
from rigs.stacks import ConfigMap, Deployment, Service, Shop, op, shop


def writes(simulation: Simulation) -> list[tuple[str, str]]:
    return [(intent.verb, intent.target) for intent in simulation.intents]


ALL = [
    ("apply", "configmaps/default/shop"),
    ("apply", "services/default/shop"),
    ("apply", "deployments.apps/default/shop"),
]


def test_kinds_are_created_in_the_order_of_the_decorator_each_once_the_one_before_is_there() -> None:
    with simulated(op, shop()) as simulation:
        level = simulation.level("stack", "default", "shop")
        assert level.status == "in_sync", level.reason
        assert level.round == 3
        assert writes(simulation) == ALL
        assert level.desired == level.actual
        assert level.actual["ConfigMap/shop"] == {"data": {"greeting": "hello"}}


def test_a_kind_that_is_refused_holds_up_those_after_it() -> None:
    with Simulation(op) as simulation:
        simulation.refuse(403, target="services/default/shop")
        run_with(simulation, shop())
        assert writes(simulation) == ALL[:2]
        assert simulation.level("stack", "default", "shop").status == "failed"


def test_a_field_that_is_left_out_of_the_manifest_is_removed_with_one_apply() -> None:
    with simulated(op, shop(paused=True)) as simulation:
        run_with(simulation, shop())
        assert writes(simulation) == [*ALL, ALL[2]]
        (found,) = simulation.objects(Deployment)
        assert "paused" not in found["spec"]
        assert simulation.level("stack", "default", "shop").status == "in_sync"


def test_what_is_not_returned_any_more_is_deleted_last_and_the_last_kind_first() -> None:
    with simulated(op, shop()) as simulation:
        simulation.patch(Deployment, "shop", {"spec": {"replicas": 7}})
        run_with(simulation, shop(parts=["deployment"]))
        assert writes(simulation)[3:] == [
            ("apply", "deployments.apps/default/shop"),
            ("delete", "services/default/shop"),
            ("delete", "configmaps/default/shop"),
        ]
        run_with(simulation, shop(parts=[]))
        assert writes(simulation)[6:] == [("delete", "deployments.apps/default/shop")]
        assert simulation.level("stack", "default", "shop").status == "in_sync"


def test_a_child_that_is_being_deleted_is_waited_for() -> None:
    with simulated(op, shop()) as simulation:
        held = {"name": "shop", "namespace": "default", "finalizers": ["example.com/wait"]}
        simulation.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": held})
        simulation.delete(ConfigMap, "shop")
        simulation.run()
        level = simulation.level("stack", "default", "shop")
        assert (level.status, level.reason) == ("drifting", "waits for the end of ConfigMap/shop")
        assert writes(simulation) == ALL
        run_with(simulation, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**held, "finalizers": []}})
        assert writes(simulation) == [*ALL, ALL[0]]
        assert simulation.level("stack", "default", "shop").status == "in_sync"


@pytest.mark.parametrize("whose", ["nobody", "ConfigMap/a"])
def test_an_object_of_somebody_else_is_not_taken_over(whose: str) -> None:
    with Simulation(op) as simulation:
        a = simulation.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": a["metadata"]["uid"], "controller": True}
        owners = [] if whose == "nobody" else [owner]
        other = {"name": "shop", "namespace": "default", "ownerReferences": owners}
        simulation.apply({"apiVersion": "v1", "kind": "Service", "metadata": other, "spec": {"ports": [{"port": 1}]}})
        simulation.apply(shop())
        simulation.run()
        level = simulation.level("stack", "default", "shop")
        assert level.status == "failed"
        assert f"Service/shop exists already and is controlled by {whose}: it is not taken over" in level.reason
        assert writes(simulation) == []
        simulation.delete(Service, "shop")
        simulation.run()
        assert writes(simulation) == ALL


def test_two_parents_that_want_one_child_at_once_do_not_take_it_from_each_other() -> None:
    both = Operator("both")

    @both.children(Shop, of=ConfigMap)
    def settings(parent: Shop) -> Manifest:
        data = {"of": parent.metadata.name}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": data}

    with Simulation(both) as simulation:
        versions: list[Any] = []

        def note(written: Manifest) -> Manifest:
            versions.append(written["data"])
            return written

        simulation.mutate(ConfigMap, note)
        for name in ("one", "two"):
            simulation.apply(shop(name=name))
        simulation.run()
        levels = {name: simulation.level("settings", "default", name) for name in ("one", "two")}
        (winner,) = [name for name, level in levels.items() if level.status == "in_sync"]
        (loser,) = levels.keys() - {winner}
        assert versions == [{"of": winner}]
        assert f"controlled by Shop/{winner}" in levels[loser].reason


def test_invariant_14_a_parent_that_cannot_be_decoded_concerns_nobody_else() -> None:
    with simulated(op, shop(), {**shop(name="poisoned"), "spec": {"replicas": "many"}}) as simulation:
        assert simulation.level("stack", "default", "poisoned").status == "failed"
        simulation.delete(Service, "shop")
        simulation.run()
        assert simulation.level("stack", "default", "shop").status == "in_sync"
        assert len(simulation.objects(Service)) == 1


def test_a_child_that_lost_its_owner_is_taken_back() -> None:
    with simulated(op, shop()) as simulation:
        simulation.patch(ConfigMap, "shop", {"metadata": {"ownerReferences": []}})
        simulation.run()
        (found,) = simulation.objects(ConfigMap)
        assert [owner["kind"] for owner in found["metadata"]["ownerReferences"]] == ["Shop"]
        assert writes(simulation) == [*ALL, ALL[0]]


def test_what_is_remembered_goes_with_the_parent() -> None:
    with simulated(op, shop()) as simulation:
        simulation.delete(Shop, "shop")
        simulation.run()
        run_with(simulation, shop())
        assert simulation.level("stack", "default", "shop").status == "in_sync"
        assert sorted(writes(simulation)) == sorted([*ALL, *ALL])


class Zone(Resource, group="example.com", version="v1", plural="zones", scope="Cluster"):
    pass


def test_a_parent_without_namespace_has_children_in_several() -> None:
    zones = Operator("zones")

    @zones.children(Zone, of=ConfigMap)
    def configs(zone: Zone) -> Iterator[Manifest]:
        for namespace in ("default", "kube-public"):
            metadata = {"name": zone.metadata.name, "namespace": namespace}
            yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"zone": namespace}}

    with simulated(zones, {"apiVersion": "example.com/v1", "kind": "Zone", "metadata": {"name": "east"}}) as simulation:
        level = simulation.level("configs", "", "east")
        assert level.status == "in_sync"
        assert set(level.actual) == {"ConfigMap/default/east", "ConfigMap/kube-public/east"}
        simulation.delete(ConfigMap, "east", namespace="kube-public")
        simulation.run()
        assert writes(simulation)[2:] == [("apply", "configmaps/kube-public/east")]


def test_without_force_a_field_that_another_manager_took_is_a_conflict_that_names_it() -> None:
    gentle = Operator("gentle")

    @gentle.children(Shop, of=ConfigMap, force=False)
    def config(shop: Shop) -> Manifest:
        metadata = {"name": shop.metadata.name}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"greeting": "hello"}}

    with simulated(gentle, shop()) as simulation:
        simulation.patch(ConfigMap, "shop", {"data": {"greeting": "ahoy"}})
        simulation.run()
        level = simulation.level("config", "default", "shop")
        assert level.status == "failed"
        assert 'conflict with "user"' in level.reason
        (found,) = simulation.objects(ConfigMap)
        assert found["data"] == {"greeting": "ahoy"}
