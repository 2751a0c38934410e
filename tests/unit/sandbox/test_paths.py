"""Sets of field paths and their form in managedFields."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from levelog_sandbox.fields.paths import compare, from_fields, paths_of, shown, to_fields, without
from levelog_sandbox.schemas.registry import Registry
from levelog_sandbox.schemas.shapes import ANY

Json = dict[str, Any]

names = st.text("abc.", min_size=1, max_size=3)
elements = st.one_of(
    names.map(lambda name: f"f:{name}"),
    names.map(lambda name: f'k:{{"name":"{name}"}}'),
    names.map(lambda name: f'v:"{name}"'),
)
path_sets = st.frozensets(st.lists(elements, min_size=1, max_size=4).map(tuple), max_size=12)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 3), names, st.just([]), st.just({})),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=12,
)
objects = st.dictionaries(names, values, max_size=4)


@given(path_sets)
def test_paths_survive_their_form_in_managed_fields(paths: frozenset[tuple[str, ...]]) -> None:
    assert from_fields(to_fields(paths)) == paths


def test_a_parent_that_is_a_member_is_marked_by_a_dot() -> None:
    fields = to_fields({("f:a",), ("f:a", "f:b"), ("f:c", "f:d")})
    assert fields == {"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}}


@given(objects, objects)
@example({"a": None}, {"a": {"a": None}})
def test_a_difference_names_each_path_once_and_is_mirrored(old: Json, new: Json) -> None:
    forth, back = compare(old, new, ANY), compare(new, old, ANY)
    assert not forth.added & forth.removed
    assert not forth.added & forth.modified
    assert not forth.modified & forth.removed
    assert forth.added == back.removed
    assert forth.removed == back.added


@given(objects)
def test_what_is_equal_does_not_differ(value: Json) -> None:
    assert not any(compare(value, value, ANY))


@given(objects)
def test_taking_away_all_paths_leaves_nothing(value: Json) -> None:
    assert without(value, paths_of(value, ANY), ANY) == {}


def test_lists_of_a_pod_are_keyed_as_its_schema_says() -> None:
    schema = Registry().named("pods").schema
    ports = [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]
    pod = {"spec": {"containers": [{"name": "c", "args": ["x"], "ports": ports}]}}
    container = ("f:spec", "f:containers", 'k:{"name":"c"}')
    assert paths_of(pod, schema) == {
        container,
        (*container, "f:name"),
        (*container, "f:args"),
        (*container, "f:ports", 'k:{"containerPort":80,"protocol":"TCP"}'),
        (*container, "f:ports", 'k:{"containerPort":80,"protocol":"TCP"}', "f:containerPort"),
        (*container, "f:ports", 'k:{"containerPort":80,"protocol":"UDP"}'),
        (*container, "f:ports", 'k:{"containerPort":80,"protocol":"UDP"}', "f:containerPort"),
        (*container, "f:ports", 'k:{"containerPort":80,"protocol":"UDP"}', "f:protocol"),
    }


def test_a_path_is_shown_as_the_server_shows_it() -> None:
    path = ("f:spec", "f:ports", 'k:{"containerPort":80,"protocol":"TCP"}', "f:tags", 'v:"x"')
    assert shown(path) == '.spec.ports[containerPort=80,protocol="TCP"].tags[="x"]'
