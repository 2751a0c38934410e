"""What a simulation says where a test uses it wrongly, and what it does at its edges."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from levelog import Intent, Level, LevelogError, Manifest, Operator, Resource, Struct, apply, delete
from levelog.testing import Simulation, StatusError
from rigs.kinds import manifest
from rigs.simulated import run_with, simulated
from rigs.typed import ConfigMap

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
op = Operator("leases")


class LeaseSpec(Struct):
    seconds: int = 10


class Lease(Resource, group="example.com", version="v1", plural="leases"):
    spec: LeaseSpec


class Zone(Resource, group="example.com", version="v1", plural="zones", scope="Cluster"):
    spec: LeaseSpec


class ClusterRole(Resource, group="rbac.authorization.k8s.io", version="v1", plural="clusterroles", scope="Cluster"):
    pass


looked_at: list[datetime] = []


@op.index
def notes(config: ConfigMap) -> Iterator[tuple[str, dict[str, str]]]:
    yield config.metadata.name, config.data or {}


@op.view
def beats(lease: Lease, now: datetime) -> Level[int]:
    looked_at.append(now)
    if lease.spec.seconds < 0:
        sys.exit("a view must not")
    return Level(desired=0, actual=0, recheck_at=now + timedelta(seconds=lease.spec.seconds))


@op.view
def zone(zone: Zone) -> Level[int]:
    return Level(desired=1, actual=1)


writer = Operator("writer")


@writer.view
def written(lease: Lease) -> Level[str]:
    return Level(desired="there", actual="absent")


@writer.reconcile(written, writes={ConfigMap: ["apply", "delete"]})
def write(lease: Lease) -> Iterator[Intent]:
    yield apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": lease.metadata.name}, "data": {"a": "b"}}
    )
    yield delete(ConfigMap, "old", owned=False)


def config(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def lease(name: str = "a", *, seconds: int = 10) -> dict[str, Any]:
    return manifest("Lease", name, seconds=seconds)


def test_time_stops_at_each_moment_at_which_something_is_due() -> None:
    looked_at.clear()
    with simulated(op, lease("a", seconds=20), lease("b", seconds=30)) as simulation:
        simulation.advance(timedelta(seconds=60))
        assert simulation.now == BEGIN + timedelta(seconds=60)
    assert [int((at - BEGIN).total_seconds()) for at in looked_at] == [0, 0, 20, 30, 40, 60, 60]


def test_a_write_waits_for_an_earlier_one_to_its_target_as_actuators_have_it() -> None:
    with Simulation(writer) as simulation:
        simulation.apply(config("old"))
        simulation.refuse(503, target="configmaps/default/old", times=1)
        run_with(simulation, lease("a"), lease("b"))
        deletes = [intent for intent in simulation.intents if intent.verb == "delete"]
        assert [intent.attempts for intent in deletes] == [1, 0]
        simulation.advance(timedelta(minutes=1))
        deletes = [intent for intent in simulation.intents if intent.verb == "delete"]
        assert [intent.attempts for intent in deletes[:2]] == [2, 1]


def test_the_names_of_roles_are_any_segment_of_a_path() -> None:
    roles = Operator("roles")

    @roles.view
    def seen(role: ClusterRole) -> Level[int]:
        return Level(desired=1, actual=1)

    with Simulation(roles) as simulation:

        def make(name: str) -> None:
            version = "rbac.authorization.k8s.io/v1"
            simulation.apply({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}})

        make("system:Node")
        simulation.run()
        assert simulation.level("seen", None, "system:Node").status == "in_sync"
        for name, why in {"..": "may not be '..'", "a%": "may not contain '%'"}.items():
            with pytest.raises(StatusError, match=why):
                make(name)


def test_time_passes_forwards_only() -> None:
    with Simulation(op) as simulation, pytest.raises(ValueError, match="time passes forwards only"):
        simulation.advance(timedelta(seconds=-1))


def test_what_cannot_be_refused_is_said() -> None:
    with Simulation(op) as simulation:
        with pytest.raises(ValueError, match="a status of 400 to 599, not 200"):
            simulation.refuse(200)
        with pytest.raises(LevelogError, match="'shop-0' does not name an object: write RESOURCE"):
            simulation.refuse(409, target="shop-0")
        with pytest.raises(
            ValueError, match="refuse lease/default/a: the cluster serves no resource 'lease': write its plural"
        ):
            simulation.refuse(409, target="lease/default/a")


@pytest.mark.parametrize("namespace", ["", None, "default"])
def test_a_parent_without_a_namespace_has_a_level(namespace: str | None) -> None:
    with Simulation(op) as simulation:
        simulation.apply({"apiVersion": "example.com/v1", "kind": "Zone", "metadata": {"name": "north"}, "spec": {}})
        simulation.run()
        assert simulation.level("zone", namespace, "north").status == "in_sync"
        assert not simulation.level("zone", namespace, "north").drift


def test_a_view_that_there_is_not_is_answered_with_those_that_there_are() -> None:
    with Simulation(op, writer) as simulation:
        with pytest.raises(KeyError) as wrong:
            simulation.level("beat", "default", "a")
        assert str(wrong.value) == "there is no view 'beat'; views are: leases/beats, leases/zone, writer/written"
        with pytest.raises(KeyError, match="there is no view 'writer/beats'"):
            simulation.level("writer/beats", "default", "a")
        run_with(simulation, lease())
        assert simulation.level("leases/beats", "default", "a") == simulation.level("beats", "default", "a")


def test_a_level_that_is_not_of_the_annotated_type_is_named() -> None:
    wrong = Operator("wrong")

    @wrong.view
    def zone(lease: Lease) -> Level[int]:
        return Level(desired=cast("int", "north"), actual=0)

    with simulated(wrong, lease()) as simulation:
        says = r'^wrong/zone is annotated to return Level\[int\], and desired for leases.* is "north": Expected `int`'
        with pytest.raises(TypeError, match=says):
            simulation.level("zone", "default", "a")


def test_a_level_that_there_is_not_is_answered_with_those_that_there_are() -> None:
    with Simulation(op) as simulation:
        with pytest.raises(KeyError) as none:
            simulation.level("beats", "default", "a")
        assert str(none.value) == (
            "view leases/beats has no level for leases.example.com/default/a: apply the object and run() the "
            "simulation; it has none at all"
        )
        for number in range(7):
            simulation.apply(lease(f"b{number}"))
        simulation.run()
        with pytest.raises(KeyError) as other:
            simulation.level("beats", "elsewhere", "b0")
        assert "it has one for leases.example.com/default/b0, " in str(other.value)
        assert str(other.value).endswith("leases.example.com/default/b4 and 2 more")


def test_a_kind_that_is_not_served_is_answered_with_what_is() -> None:
    with Simulation(op) as simulation, pytest.raises(StatusError) as wrong:
        simulation.apply({"apiVersion": "example.com/v2", "kind": "Lease", "metadata": {"name": "a"}})
    assert wrong.value.code == 404
    [hint] = wrong.value.__notes__
    assert "example.com/v1 Lease, example.com/v1 Zone, v1 ConfigMap" in hint


def test_a_closed_simulation_says_so() -> None:
    simulation = Simulation(op)
    with pytest.raises(RuntimeError, match="the simulation is not open: use it inside `with Simulation"):
        simulation.run()
    with simulation:
        simulation.run()
    for use in (
        simulation.run,
        lambda: simulation.apply(lease()),
        lambda: simulation.delete(Lease, "a"),
        lambda: simulation.objects(Lease),
        lambda: simulation.level("beats", "default", "a"),
        lambda: simulation.advance(timedelta(1)),
        lambda: simulation.intents,
        lambda: simulation.calls,
        lambda: simulation.refuse(409),
        lambda: simulation.echo,
    ):
        with pytest.raises(RuntimeError, match="the simulation is closed: ask it inside `with Simulation"):
            use()
    with pytest.raises(RuntimeError, match="entered once: make another"), simulation:
        pass


class RoleBinding(Resource, group="rbac.authorization.k8s.io", version="v1", plural="rolebindings"):
    role_ref: dict[str, str]


class StorageClass(Resource, group="storage.k8s.io", version="v1", plural="storageclasses", scope="Cluster"):
    provisioner: str


class PodTemplate(Resource, version="v1", plural="podtemplates"):
    """The sandbox does not know it."""


class Endpoints(Resource, version="v1", plural="endpoints"):
    pass


class Tenant(Resource, group="example.com", version="v1", plural="tenants", scope="Cluster"):
    pass


SUBSETS = [{"addresses": [{"ip": "10.0.0.1"}]}]


def test_kinds_without_a_spec_and_those_that_the_sandbox_does_not_know_are_served() -> None:
    op = Operator("tenants")

    @op.children(Tenant, of=[RoleBinding, StorageClass, PodTemplate, Endpoints])
    def parts(tenant: Tenant) -> Iterator[Manifest]:
        name = tenant.metadata.name
        inside = {"name": name, "namespace": "default"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "edit"}
        subjects = [{"kind": "User", "name": name}]
        rbac = "rbac.authorization.k8s.io/v1"
        yield {"apiVersion": rbac, "kind": "RoleBinding", "metadata": inside, "roleRef": role, "subjects": subjects}
        yield {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": "x",
        }
        template = {"spec": {"containers": [{"name": "a", "image": "a"}]}}
        yield {"apiVersion": "v1", "kind": "PodTemplate", "metadata": inside, "template": template}
        yield {"apiVersion": "v1", "kind": "Endpoints", "metadata": inside, "subsets": SUBSETS}

    with simulated(op, {"apiVersion": "example.com/v1", "kind": "Tenant", "metadata": {"name": "acme"}}) as simulation:
        level = simulation.level("parts", None, "acme")
        assert (level.status, level.reason) == ("in_sync", "")
        assert simulation.objects(RoleBinding)[0]["roleRef"]["name"] == "edit"
        assert simulation.objects(StorageClass)[0]["provisioner"] == "x"
        assert simulation.objects(Endpoints)[0]["subsets"] == SUBSETS
        simulation.delete(PodTemplate, "acme")
        simulation.run()
        assert len(simulation.objects(PodTemplate)) == 1
