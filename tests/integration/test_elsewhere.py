"""A parent with a namespace writes there alone, unless its function says that it writes anywhere."""

from collections.abc import Iterator
from typing import Any

import pytest

from levelog import Intent, Level, Operator, Resource, apply, create, delete, patch
from levelog.testing import Simulation
from rigs.kinds import ConfigMap, Web


class Tenant(Resource, group="example.com", version="v1", plural="tenants", scope="Cluster"):
    pass


class Namespace(Resource, version="v1", plural="namespaces", scope="Cluster"):
    pass


def manifest(kind: str = "ConfigMap", **metadata: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", **metadata}}


ELSEWHERE: dict[str, Intent] = {
    "apply": apply(manifest(namespace="other")),
    "create": create(manifest(namespace="other")),
    "patch": patch(ConfigMap, "there", {"data": {"a": "b"}}, namespace="other"),
    "delete": delete(ConfigMap, "there", namespace="other", owned=False),
    "apply without a namespace": apply(manifest("Namespace")),
}


def operator(intent: Intent, *, anywhere: bool, parent: type[Any] = Web) -> Operator:
    op = Operator("webs")
    verbs: list[Any] = [intent.verb, *(["anywhere"] if anywhere else [])]

    def config(web: Any) -> Level[bool]:
        return Level(desired=True, actual=False)

    config.__annotations__["web"] = parent
    view: Any = op.view(config)

    def write(web: Any) -> Iterator[Intent]:
        yield intent

    write.__annotations__["web"] = parent
    op.reconcile(view, writes={ConfigMap: verbs, Namespace: verbs})(write)
    return op


def run(op: Operator, parent: dict[str, Any]) -> tuple[str, str, list[str]]:
    """Status and reason of the level, and the states of what it asked for."""
    with Simulation(op) as simulation:
        simulation.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        simulation.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there", "namespace": "other"}})
        simulation.apply(parent)
        simulation.run()
        level = simulation.level("config", parent["metadata"].get("namespace", ""), "shop")
        return level.status, level.reason, [each.state for each in simulation.intents]


SHOP = {"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "shop", "namespace": "default"}}


@pytest.mark.parametrize("how", ELSEWHERE)
def test_invariant_19_a_write_outside_of_the_parents_namespace_is_declared_or_refused(how: str) -> None:
    status, reason, states = run(operator(ELSEWHERE[how], anywhere=False), SHOP)
    assert (status, states) == ("failed", [])
    assert "it is not in the namespace of webs.example.com/default/shop, which writes there alone" in reason
    assert '"anywhere"' in reason
    assert run(operator(ELSEWHERE[how], anywhere=True), SHOP)[2] == ["settled"]


def test_a_parent_without_a_namespace_writes_in_all_of_them() -> None:
    op = operator(apply(manifest(namespace="other")), anywhere=False, parent=Tenant)
    tenant = {"apiVersion": "example.com/v1", "kind": "Tenant", "metadata": {"name": "shop"}}
    assert run(op, tenant)[2] == ["settled"]
