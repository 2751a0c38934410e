"""Whose an object is: a controller of the parent's kind, uid and namespace; nothing else is written or deleted."""

from collections.abc import Iterator
from typing import Any

import pytest

from levelog import Index, Intent, Level, Operator, Owner, Resource, apply, delete
from levelog.testing import Simulation
from rigs.kinds import Pod
from rigs.typed import ConfigMap, Web


class Tenant(Resource, group="example.com", version="v1", plural="tenants", scope="Cluster"):
    pass


def pod_manifest(name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "nginx:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def operator_of_views() -> Operator:
    op = Operator("webs")

    @op.index
    def names(pod: Pod) -> Iterator[tuple[Owner, str]]:
        if owner := pod.metadata.controlled_by(Web):
            yield owner, pod.metadata.name

    @op.view
    def pods(web: Web, names: Index[Owner, str]) -> Level[set[str]]:
        wanted = {f"{web.metadata.name}-{n}" for n in range(web.spec.replicas)}
        return Level(desired=wanted, actual=set(names[web.as_owner]))

    @op.reconcile(pods, writes={Pod: ["apply", "delete"]})
    def converge(web: Web, level: Level[set[str]]) -> Iterator[Intent]:
        for name in sorted(level.drift.missing):
            yield apply(pod_manifest(name))
        for name in sorted(level.drift.extra):
            yield delete(Pod, name)

    return op


def operator_of_children() -> Operator:
    op = Operator("webs")

    @op.children(Web, of=Pod)
    def pods(web: Web) -> Iterator[dict[str, Any]]:
        for n in range(web.spec.replicas):
            yield pod_manifest(f"{web.metadata.name}-{n}")

    return op


def shop(simulation: Simulation, replicas: int = 1) -> str:
    """Make the Web `shop` of namespace victim, and return its uid."""
    for namespace in ("victim", "tenant"):
        simulation.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    metadata = {"name": "shop", "namespace": "victim"}
    web = {"apiVersion": "example.com/v1", "kind": "Web", "metadata": metadata, "spec": {"replicas": replicas}}
    return str(simulation.apply(web)["metadata"]["uid"])


def tell(simulation: Simulation, namespace: str, name: str, uid: str, kind: str = "Web") -> None:
    """Make a pod that says it is controlled; a finalizer keeps the garbage collector from ending it."""
    owner = {"apiVersion": "example.com/v1", "kind": kind, "name": "shop", "uid": uid, "controller": True}
    pod = pod_manifest(name)
    pod["metadata"] |= {"namespace": namespace, "finalizers": ["example.com/keep"]}
    simulation.apply(pod | {"metadata": pod["metadata"] | ({"ownerReferences": [owner]} if uid else {})})


def pods_of(simulation: Simulation, namespace: str) -> list[str]:
    found = [pod["metadata"] for pod in simulation.objects(Pod)]
    return sorted(each["name"] for each in found if each["namespace"] == namespace)


@pytest.mark.parametrize("operator", [operator_of_views, operator_of_children])
@pytest.mark.parametrize(("kind", "namespace"), [("Web", "tenant"), ("Webs", "victim")])
def test_invariant_19_an_owner_of_another_namespace_or_kind_is_none(operator: Any, kind: str, namespace: str) -> None:
    with Simulation(operator()) as simulation:
        uid = shop(simulation)
        tell(simulation, "victim", "database-0", "")
        tell(simulation, namespace, "database-0" if namespace == "tenant" else "forged-0", uid, kind)
        simulation.run()
        assert "database-0" in pods_of(simulation, "victim"), "nobody's business but its owner's"
        assert "shop-0" in pods_of(simulation, "victim")
        assert [str(each.target) for each in simulation.intents if each.verb == "delete"] == []
        simulation.delete(Pod, "shop-0", namespace="victim")
        tell(simulation, "tenant", "shop-0", uid)
        simulation.run()
        assert "shop-0" in pods_of(simulation, "victim"), "a forged one does not stand for it"
        assert simulation.level("pods", "victim", "shop").status == "in_sync"


def deleting(name: str, *, owned: bool) -> Operator:
    op = Operator("webs")

    @op.index
    def everything(pod: Pod) -> Iterator[tuple[str, str]]:
        yield pod.metadata.namespace, pod.metadata.name

    @op.view
    def pods(web: Web, everything: Index[str, str]) -> Level[set[str]]:
        return Level(desired=set(), actual=set(everything[web.metadata.namespace]) & {name})

    @op.reconcile(pods, writes={Pod: ["delete"]})
    def converge(_: Web, level: Level[set[str]]) -> Iterator[Intent]:
        for each in level.drift.extra:
            yield delete(Pod, each, owned=owned)

    return op


def test_invariant_19_what_the_parent_does_not_control_is_deleted_only_if_the_code_says_so() -> None:
    with Simulation(deleting("database-0", owned=True)) as simulation:
        shop(simulation)
        tell(simulation, "victim", "database-0", "")
        simulation.run()
        level = simulation.level("pods", "victim", "shop")
        assert (level.status, pods_of(simulation, "victim")) == ("failed", ["database-0"])
        assert "delete of pods/victim/database-0: it exists and is controlled by nobody, not by " in level.reason
        assert "owned=False" in level.reason
    with Simulation(deleting("database-0", owned=False)) as simulation:
        shop(simulation)
        tell(simulation, "victim", "database-0", "")
        simulation.run()
        [pod] = simulation.objects(Pod)
        assert pod["metadata"].get("deletionTimestamp")


def applying(*, adopt: bool, is_watched: bool) -> Operator:
    op = Operator("webs")
    if is_watched:

        @op.index
        def held(config: ConfigMap) -> Iterator[tuple[str, str]]:
            yield config.metadata.name, config.metadata.namespace

    @op.view
    def config(_: Web) -> Level[bool]:
        return Level(desired=True, actual=False)

    @op.reconcile(config, writes={ConfigMap: ["apply"]})
    def write(web: Web) -> Iterator[Intent]:
        metadata = {"name": web.metadata.name}
        yield apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "new"}}, adopt=adopt)

    return op


@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize("adopt", [True, False])
def test_invariant_19_an_object_that_nobody_controls_is_adopted_only_if_the_code_says_so(
    adopt: bool,
    is_watched: bool,
) -> None:
    with Simulation(applying(adopt=adopt, is_watched=is_watched)) as simulation:
        metadata = {"name": "shop", "namespace": "victim"}
        simulation.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "victim"}})
        simulation.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"mine": "old"}})
        shop(simulation)
        simulation.run()
        [config] = [each for each in simulation.objects(ConfigMap) if each["metadata"]["namespace"] == "victim"]
        assert config["data"] == ({"mine": "old", "a": "new"} if adopt else {"mine": "old"})
        if not adopt:
            level = simulation.level("config", "victim", "shop")
            assert level.status == "failed"
            assert "configmaps/victim/shop: it exists and is controlled by nobody, not by" in level.reason
            assert "adopt=True" in level.reason


def test_an_owner_that_a_manifest_names_is_the_one_that_counts() -> None:
    op, tenants = Operator("webs"), list[str]()

    @op.index
    def held(config: ConfigMap) -> Iterator[tuple[str, dict[str, str]]]:
        yield config.metadata.name, config.data or {}

    @op.view
    def config(web: Web, held: Index[str, dict[str, str]]) -> Level[list[dict[str, str]]]:
        return Level(desired=[{"replicas": str(web.spec.replicas)}], actual=list(held["shared"]))

    @op.reconcile(config, writes={ConfigMap: ["apply"]})
    def write(web: Web) -> Iterator[Intent]:
        owner = {"apiVersion": "example.com/v1", "kind": "Tenant", "name": "one", "uid": tenants[0], "controller": True}
        metadata = {"name": "shared", "ownerReferences": [owner]}
        data = {"replicas": str(web.spec.replicas)}
        yield apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    @op.view
    def known(tenant: Tenant) -> Level[bool]:
        return Level(desired=True, actual=True)

    with Simulation(op) as simulation:
        tenant = {"apiVersion": "example.com/v1", "kind": "Tenant", "metadata": {"name": "one"}}
        tenants.append(str(simulation.apply(tenant)["metadata"]["uid"]))
        for replicas in (1, 2):
            shop(simulation, replicas)
            simulation.run()
            [shared] = [each for each in simulation.objects(ConfigMap) if each["metadata"]["name"] == "shared"]
            assert shared["data"] == {"replicas": str(replicas)}
            assert simulation.level("config", "victim", "shop").status == "in_sync"


def test_a_uid_is_no_key_of_an_index_by_owner() -> None:
    op = Operator("webs")

    @op.index
    def names(pod: Pod) -> Iterator[tuple[Owner, str]]:
        if owner := pod.metadata.controlled_by(Web):
            yield owner, pod.metadata.name

    @op.view
    def pods(web: Web, names: Index[Owner, str]) -> Level[int]:
        key: Any = web.metadata.uid
        return Level(1, len(names[key]))

    with Simulation(op) as simulation:
        shop(simulation)
        simulation.run()
        level = simulation.level("pods", "victim", "shop")
        assert "index webs/names is by Owner: look up an object's as_owner, not" in level.reason
