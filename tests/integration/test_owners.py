"""What a parent may write: what it controls, in its own namespace, unless the code says more."""

from collections.abc import Iterator
from typing import Any

import pytest

from levelog import Index, Intent, Level, Operator, Owner, Resource, apply, create, delete, patch
from rigs.kinds import Pod, manifest, web
from rigs.simulated import run_with, simulated
from rigs.typed import ConfigMap, Web


class Tenant(Resource, group="example.com", version="v1", plural="tenants", scope="Cluster"):
    pass


class Namespace(Resource, version="v1", plural="namespaces", scope="Cluster"):
    pass


OTHER = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
TENANT = {"apiVersion": "example.com/v1", "kind": "Tenant", "metadata": {"name": "one"}}


def config(name: str = "a", *, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return body if data is None else body | {"data": data}


def writing(intent: Intent, *more: str, parent: type[Web] | type[Tenant] = Web, is_watched: bool = False) -> Operator:
    """An operator whose only level asks for an intent; `more` stands in its `writes=`."""
    op, verbs = Operator("webs"), [intent.verb, *more]

    def level(of: Any) -> Level[bool]:
        return Level(desired=True, actual=False)

    def write(of: Any) -> Iterator[Intent]:
        yield intent

    level.__annotations__["of"] = write.__annotations__["of"] = parent
    writes: Any = {ConfigMap: verbs, Namespace: verbs}
    op.reconcile(op.view(level), writes=writes)(write)
    if is_watched:

        @op.index
        def held(config: ConfigMap) -> Iterator[tuple[str, str]]:
            yield config.metadata.name, config.metadata.namespace

    return op


@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize("is_said", [True, False])
@pytest.mark.parametrize("verb", ["apply", "delete"])
def test_invariant_19_an_object_that_nobody_controls_is_written_and_deleted_only_if_the_code_says_so(
    verb: str, is_said: bool, is_watched: bool
) -> None:
    intent = (
        apply(config(data={"a": "new"}), adopt=is_said)
        if verb == "apply"
        else delete(ConfigMap, "a", owned=not is_said)
    )
    mine = config(data={"mine": "old"}, namespace="default")
    with simulated(writing(intent, is_watched=is_watched), mine, web("shop")) as simulation:
        left = [each["data"] for each in simulation.objects(ConfigMap)]
        if is_said:
            assert left == ([{"mine": "old", "a": "new"}] if verb == "apply" else [])
        else:
            level = simulation.level("level", "default", "shop")
            assert (left, level.status) == ([{"mine": "old"}], "failed")
            assert "configmaps/default/a: it exists and is controlled by nobody, not by" in level.reason
            assert ("adopt=True" if verb == "apply" else "owned=False") in level.reason


ELSEWHERE: dict[str, Intent] = {
    "apply": apply(config(namespace="other")),
    "create": create(config(namespace="other")),
    "patch": patch(ConfigMap, "there", {"data": {"a": "b"}}, namespace="other"),
    "delete": delete(ConfigMap, "there", namespace="other", owned=False),
    "apply without a namespace": apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}),
}


@pytest.mark.parametrize("how", ELSEWHERE)
def test_invariant_19_a_write_outside_of_the_parents_namespace_is_declared_or_refused(how: str) -> None:
    there = config("there", namespace="other")
    with simulated(writing(ELSEWHERE[how]), OTHER, there, web("shop")) as simulation:
        level = simulation.level("level", "default", "shop")
        assert (level.status, simulation.intents) == ("failed", [])
        assert "it is not in the namespace of webs.example.com/default/shop, which writes there alone" in level.reason
        assert '"anywhere"' in level.reason
    with simulated(writing(ELSEWHERE[how], "anywhere"), OTHER, there, web("shop")) as simulation:
        assert [each.state for each in simulation.intents] == ["settled"]


def test_a_parent_without_a_namespace_writes_in_all_of_them() -> None:
    with simulated(writing(ELSEWHERE["apply"], parent=Tenant), OTHER, TENANT) as simulation:
        assert [each.state for each in simulation.intents] == ["settled"]


def test_an_owner_that_a_manifest_names_is_the_one_that_counts() -> None:
    op, tenants = Operator("webs"), list[str]()

    @op.index
    def held(config: ConfigMap) -> Iterator[tuple[str, dict[str, str]]]:
        yield config.metadata.name, config.data or {}

    @op.view
    def told(web: Web, held: Index[str, dict[str, str]]) -> Level[list[dict[str, str]]]:
        return Level(desired=[{"replicas": str(web.spec.replicas)}], actual=list(held["shared"]))

    @op.reconcile(told, writes={ConfigMap: ["apply"]})
    def write(web: Web) -> Iterator[Intent]:
        owner = {"apiVersion": "example.com/v1", "kind": "Tenant", "name": "one", "uid": tenants[0], "controller": True}
        yield apply(config("shared", data={"replicas": str(web.spec.replicas)}, ownerReferences=[owner]))

    @op.view
    def known(tenant: Tenant) -> Level[bool]:
        return Level(desired=True, actual=True)

    with simulated(op) as simulation:
        tenants.append(str(simulation.apply(TENANT)["metadata"]["uid"]))
        for replicas in (1, 2):
            run_with(simulation, web("shop", replicas=replicas))
            assert [each["data"] for each in simulation.objects(ConfigMap)] == [{"replicas": str(replicas)}]
            assert simulation.level("told", "default", "shop").status == "in_sync"


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

    with simulated(op, manifest("Web", "shop")) as simulation:
        reason = simulation.level("pods", "default", "shop").reason
        assert "index webs/names is by Owner: look up an object's as_owner, not" in reason
