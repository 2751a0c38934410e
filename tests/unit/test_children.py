"""What `@op.children` takes and refuses, and the steps that it plans."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog import Manifest, Operator, Owner, Resource, apply
from levelog.handlers.children import ChildIndex, ChildrenView
from levelog.handlers.owned import ChildKind, ChildrenLevel, OwnedChild, WantedChild, level_of
from levelog.resources import ResourceBase
from levelog_base.errors import ChildRefused
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Uid
from levelog_base.wire.projection import fields_of
from rigs.kinds import ConfigMap, Service, Web


class Zone(Resource, group="example.com", version="v1", plural="zones", scope="Cluster"):
    pass


class KnativeService(Resource, group="serving.knative.dev", version="v1", plural="services", kind="Service"):
    pass


class ClusterRole(Resource, group="rbac.authorization.k8s.io", version="v1", plural="clusterroles", scope="Cluster"):
    pass


def config(name: str = "a", **metadata: Any) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"x": "y"}}


class Nothing(dict[Any, Any]):
    """An index without entries."""

    def __missing__(self, key: Any) -> tuple[()]:
        return ()


def level(
    result: Any, *, parent: type[ResourceBase] = Web, of: Any = (ConfigMap, Service), returns: Any = Any
) -> ChildrenLevel:
    """The level of a parent that has no children yet, for what a function returned."""
    op = Operator("shop")

    def stack(parent: Any) -> Any:
        raise AssertionError("not called")

    stack.__annotations__ |= {"parent": parent, "return": returns}
    op.children(parent, of=of)(stack)
    view = op.views["stack"]
    assert isinstance(view, ChildrenView)
    namespace = "default" if parent.resource_type.scope == "Namespaced" else ""
    body = {"metadata": {"name": "shop", "uid": "u", "namespace": namespace}}
    indices = {parameter.name: Nothing() for parameter in view.indices}
    return view.level(msgspec.convert(body, parent), result, indices, Redactor(b"0123456789abcdef"))


def test_one_manifest_several_or_none_are_returned_or_yielded() -> None:
    def yielded() -> Iterator[Manifest]:
        yield config("a")
        yield config("b")

    assert set(level(config()).desired) == {"ConfigMap/a"}
    assert set(level([config("a"), config("b")]).desired) == {"ConfigMap/a", "ConfigMap/b"}
    assert set(level(yielded()).desired) == {"ConfigMap/a", "ConfigMap/b"}
    assert level([]).desired == {}


@pytest.mark.parametrize(
    ("returns", "is_fine"), [(Manifest | None, True), (None, True), (list[Manifest], False), (Any, False)]
)
def test_none_is_none_only_where_the_annotation_says_so(returns: Any, is_fine: bool) -> None:
    if is_fine:
        assert level(None, returns=returns).desired == {}
    else:
        with pytest.raises(ChildRefused, match=r"nothing is returned: return \[\] for no children, op.KEEP to leave"):
            level(None, returns=returns)


def test_children_are_kept_as_a_whole_or_not_at_all() -> None:
    assert not level(Operator.KEEP).drift
    assert not level(iter([Operator.KEEP])).drift
    with pytest.raises(ChildRefused, match="KEEP is returned beside manifests"):
        level([config(), Operator.KEEP])


@pytest.mark.parametrize(
    ("parent", "of", "manifest", "key"),
    [
        (Web, ConfigMap, config(), "ConfigMap/a"),
        (Web, ConfigMap, config(namespace="default"), "ConfigMap/a"),
        (Zone, ConfigMap, config(namespace="east"), "ConfigMap/east/a"),
        (
            Zone,
            ClusterRole,
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a"}},
            "ClusterRole/a",
        ),
        (
            Web,
            [Service, KnativeService],
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}},
            "Service/a",
        ),
        (
            Web,
            [Service, KnativeService],
            {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "a"}},
            "Service.serving.knative.dev/a",
        ),
    ],
)
def test_children_are_named_by_kind_and_name(parent: type[ResourceBase], of: Any, manifest: Manifest, key: str) -> None:
    assert list(level(manifest, parent=parent, of=of).desired) == [key]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}, "ConfigMap: metadata.name has to be given"),
        ({"apiVersion": "v1", "kind": "ConfigMap"}, "ConfigMap: metadata.name has to be given"),
        (config(generateName="a-"), "ConfigMap a: metadata.name has to be given, names are never generated"),
        ([config(), config()], "ConfigMap/a is returned twice"),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}},
            "Pod a: v1 Pod is not in of=; there are: v1 ConfigMap, v1 Service",
        ),
        ({"kind": "ConfigMap", "metadata": {"name": "a"}}, "ConfigMap a: no apiVersion ConfigMap is not in of="),
        (config(namespace="other"), "ConfigMap a: is to be in namespace other, its parent is in default"),
        (config(ownerReferences=[]), "ConfigMap a: names ownerReferences: the parent is the owner"),
        ({**config(), "status": {}}, "ConfigMap a: sets its status"),
        (["a"], "str is returned, which is not a manifest"),
        ("text", "str is returned, which is not a manifest"),
        ([apply(config())], "Intent is returned, which is not a manifest: return the manifest itself, without apply("),
    ],
)
def test_what_cannot_be_a_child_is_refused(result: Any, message: str) -> None:
    with pytest.raises(ChildRefused) as caught:
        level(result)
    assert message in str(caught.value)


def test_a_parent_without_namespace_needs_one_in_the_manifest() -> None:
    with pytest.raises(ChildRefused, match=r"needs metadata\.namespace, since its parent has none"):
        level(config(), parent=Zone)


KINDS = (ChildKind("ConfigMap", ConfigMap), ChildKind("Service", Service))


def wanted(kind: ChildKind, name: str, size: int) -> WantedChild:
    resource = kind.resource
    manifest = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": {"size": size},
    }
    key = kind.key("default", name, is_beside_parent=True)
    return WantedChild(kind=kind, key=key, namespace="", name=name, manifest=manifest, fields=fields_of(manifest))


def owned(kind: ChildKind, name: str, size: int, *, is_deleting: bool) -> OwnedChild:
    return OwnedChild(
        kind=kind,
        key=kind.key("default", name, is_beside_parent=True),
        namespace="default",
        name=name,
        is_deleting=is_deleting,
        body={"metadata": {"name": name, "uid": name}, "spec": {"size": size, "defaulted": True}},
        applied=None,
    )


places = st.tuples(st.sampled_from(KINDS), st.sampled_from("abc"))


@given(
    desired=st.dictionaries(places, st.integers(0, 1)),
    there=st.dictionaries(places, st.tuples(st.integers(0, 1), st.booleans())),
)
def test_step_by_step_any_children_become_the_wanted_ones_in_a_safe_order(
    desired: dict[tuple[ChildKind, str], int], there: dict[tuple[ChildKind, str], tuple[int, bool]]
) -> None:
    wants = [wanted(kind, name, size) for (kind, name), size in desired.items()]
    state = dict(there)
    taken: list[tuple[str, str]] = []
    for _ in range(20):
        found = level_of(
            KINDS,
            wants,
            [owned(kind, name, size, is_deleting=gone) for (kind, name), (size, gone) in state.items()],
            frozenset(),
            force=True,
        )
        if not found.drift:
            break
        assert found.steps or found.reason
        for step in found.steps:
            [kind] = [kind for kind in KINDS if kind.cls is step.resource]
            taken.append((step.verb, kind.label))
            if step.verb == "apply":
                state[kind, step.name] = (step.body["spec"]["size"], False)
            else:
                del state[kind, step.name]
        if not found.steps:  # what is being deleted goes
            state = {place: value for place, value in state.items() if not value[1]}
    assert {place: size for place, (size, gone) in state.items() if not gone} == desired
    order = [("apply", "ConfigMap"), ("apply", "Service"), ("delete", "Service"), ("delete", "ConfigMap")]
    assert [order.index(step) for step in taken] == sorted(order.index(step) for step in taken)


def test_drift_names_children_and_of_the_changed_ones_the_fields() -> None:
    found = level_of(
        KINDS,
        [wanted(KINDS[0], "a", 1), wanted(KINDS[0], "b", 1)],
        [owned(KINDS[0], "a", 2, is_deleting=False), owned(KINDS[1], "c", 1, is_deleting=False)],
        frozenset(),
        force=True,
    )
    assert found.drift.missing == {"ConfigMap/b"}
    assert found.drift.extra == {"Service/c"}
    assert found.drift.changed == {"ConfigMap/a spec.size"}


def test_a_change_of_the_parents_class_keeps_what_was_applied() -> None:
    class Narrow(Resource, group="example.com", version="v1", plural="webs", kind="Web"):
        pass

    class Wide(Resource, group="example.com", version="v1", plural="webs", kind="Web"):
        spec: str = ""

    def fingerprints(cls: type[ResourceBase]) -> dict[str, str]:
        op = Operator("shop")

        def stack(web: Any) -> None:
            pass

        stack.__annotations__["web"] = cls
        op.children(cls, of=ConfigMap)(stack)
        return {name: index.fingerprint for name, index in op.indices.items()}

    assert set(fingerprints(Wide)) == {"@children/webs.example.com/configmaps", "@applied/stack"}
    assert fingerprints(Narrow) == fingerprints(Wide)


def test_an_object_is_indexed_whole_only_for_a_parent_that_controls_it() -> None:
    index = ChildIndex(Web, ConfigMap)

    def keys(**owner: Any) -> list[Any]:
        reference = {"apiVersion": "example.com/v1", "kind": "Web", "name": "shop", "uid": "u", "controller": True}
        metadata = {"name": "a", "namespace": "b", "uid": "c", "ownerReferences": [reference | owner]}
        return [key for key, _ in index.entries(msgspec.json.encode({"metadata": metadata, "status": {}}))]

    assert keys() == keys(apiVersion="example.com/v1beta1") == [("b", "a"), Owner("example.com", "Web", "b", Uid("u"))]
    assert keys(controller=False) == keys(kind="Cron") == keys(apiVersion="other/v1") == [("b", "a")]
