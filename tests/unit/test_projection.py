"""What counts of a child: the fields that its manifest sets, however the rest of it looks."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog_base.wire.projection import MOST_APPLIED_BYTES, applied, differing, fields_of, project

names = st.sampled_from(["a", "b", "c", "app.kubernetes.io/name"])
scalars = st.booleans() | st.integers(-3, 3) | st.text("xy", max_size=2)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(names, inner, max_size=3)
        | st.dictionaries(st.sampled_from(["web", "side", "log"]), inner, max_size=3).map(
            lambda items: [{"name": name, "a": value} for name, value in items.items()]
        )
    ),
    max_leaves=6,
)
manifests = st.dictionaries(st.sampled_from(["spec", "data", "a"]), values, max_size=3).map(fields_of)


def is_named(items: list[Any]) -> bool:
    found = [item.get("name") for item in items if isinstance(item, dict)]
    return len(found) == len(items) == len(set(found)) and all(isinstance(name, str) for name in found)


def embellished(data: st.DataObject, wanted: Any) -> Any:
    """The value with fields added to its mappings, and items to its lists of named ones, in another order."""
    if isinstance(wanted, dict):
        added = data.draw(st.dictionaries(st.sampled_from(["status", "defaulted"]), values, max_size=2))
        return {**added, **{name: embellished(data, below) for name, below in wanted.items()}}
    if isinstance(wanted, list):
        items = [embellished(data, item) for item in wanted]
        if items and is_named(items):
            injected = data.draw(st.lists(st.just({"name": "injected", "image": "proxy"}), max_size=1))
            items = data.draw(st.permutations([*items, *injected]))
        return items
    return wanted


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Places of the values that are set; names by which items are matched are no values."""
    if isinstance(value, dict):
        return [place for name, below in value.items() if name != "name" for place in leaves(below, (*path, name))]
    if isinstance(value, list):
        return [place for number, item in enumerate(value) for place in leaves(item, (*path, number))]
    return [path]


def with_other_leaf(value: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        return {"other": value}
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = with_other_leaf(value[path[0]], path[1:])
    return changed


@given(wanted=manifests, data=st.data())
def test_an_object_that_embeds_the_manifest_holds_just_that(wanted: dict[str, Any], data: st.DataObject) -> None:
    body = embellished(data, wanted)
    assert project(wanted, body) == wanted
    assert differing(wanted, project(wanted, body)) == []


@given(wanted=manifests, data=st.data())
def test_a_set_field_that_is_changed_always_drifts(wanted: dict[str, Any], data: st.DataObject) -> None:
    places = leaves(wanted)
    if not places:
        return
    place = data.draw(st.sampled_from(places))
    body = embellished(data, with_other_leaf(wanted, place))
    assert len(differing(wanted, project(wanted, body))) == 1


@given(wanted=manifests, answer=manifests)
def test_what_the_server_made_of_an_apply_is_in_sync(wanted: dict[str, Any], answer: dict[str, Any]) -> None:
    last = applied(wanted, answer)
    assert differing(wanted, project(wanted, answer, last)) == []


@given(wanted=manifests, answer=manifests, data=st.data())
def test_another_wanted_value_or_another_actual_one_is_no_longer_what_the_server_made(
    wanted: dict[str, Any], answer: dict[str, Any], data: st.DataObject
) -> None:
    last = applied(wanted, answer)
    assert last is not None
    if not last.changes:
        return
    edited = with_other_leaf(answer, data.draw(st.sampled_from(leaves(answer)))) if leaves(answer) else {}
    changed = set(differing(wanted, project(wanted, edited)))
    assert set(differing(wanted, project(wanted, edited, last))) <= changed
    other = with_other_leaf(wanted, data.draw(st.sampled_from(leaves(wanted)))) if leaves(wanted) else {"spec": 1}
    assert differing(other, project(other, wanted, last))


DEPLOYMENT: dict[str, Any] = {
    "metadata": {"labels": {"app.kubernetes.io/name": "shop"}},
    "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "web", "image": "nginx", "args": ["-q"]}]}}},
}


def deployment(**container: Any) -> dict[str, Any]:
    containers = [{"name": "proxy", "image": "envoy"}, {"name": "web", "image": "nginx", "args": ["-q"], **container}]
    return {
        "metadata": {"labels": {"app.kubernetes.io/name": "shop"}, "annotations": {"a": "b"}},
        "spec": {"replicas": 2, "paused": False, "template": {"spec": {"containers": containers}}},
    }


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        (deployment(), []),
        (deployment(image="nginx:1"), ["spec.template.spec.containers[web].image"]),
        (deployment(args=["-v"]), ["spec.template.spec.containers[web].args[0]"]),
        (deployment(args=["-q", "-v"]), ["spec.template.spec.containers[web].args"]),
        ({**deployment(), "metadata": {}}, ["metadata.labels"]),
        ({**deployment(), "metadata": {"labels": {"x": "y"}}}, ['metadata.labels["app.kubernetes.io/name"]']),
        ({**deployment(), "spec": {"replicas": True}}, ["spec.replicas", "spec.template"]),
    ],
)
def test_differing_fields_are_named(body: dict[str, Any], paths: list[str]) -> None:
    assert differing(DEPLOYMENT, project(DEPLOYMENT, body)) == paths


def test_an_item_that_was_applied_and_is_wanted_no_more_drifts() -> None:
    two = {"spec": {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}}
    one = {"spec": {"env": [{"name": "A", "value": "1"}]}}
    assert differing(one, project(one, two)) == []
    assert differing(one, project(one, two, applied(two, two))) == ["spec.env[B]"]


def test_nothing_is_remembered_of_what_is_too_large_to_be_remembered() -> None:
    wanted = {"spec": {f"field-{n}": n for n in range(MOST_APPLIED_BYTES // 10)}}
    assert applied(wanted, wanted) is None


def test_what_is_remembered_holds_no_values() -> None:
    last = applied({"data": {"password": "secret", "list": ["secret"]}}, {"data": {"password": "hidden"}})
    assert "secret" not in str(last)
    assert "hidden" not in str(last)


def test_identity_owner_and_nulls_set_no_field() -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "b", "labels": None, "ownerReferences": []},
        "data": {"a": None},
    }
    assert fields_of(manifest) == {"data": {}}
