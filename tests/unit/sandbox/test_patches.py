"""Kinds and patches of the sandbox: those of their RFCs by its examples, server-side apply against a model."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog.compat.kopf.kopftargets import BUILT_IN
from levelog_base.wire.projection import merge
from levelog_sandbox import StatusError
from levelog_sandbox.fields.ownership import Claims, FieldWriter, apply
from levelog_sandbox.fields.patches import json_patch
from levelog_sandbox.schemas.registry import Registry
from levelog_sandbox.schemas.shapes import Schema, SchemaBuilder


def test_it_serves_what_operators_commonly_read_and_write() -> None:
    served = {(each.group, each.version, each.plural) for each in Registry()}
    missing = {(group, version, plural) for group, version, plural, *_ in BUILT_IN} - served
    assert missing == {("", "v1", "replicationcontrollers")}, "which Deployments have replaced"


Json = dict[str, Any]

names = st.text("ab", min_size=1, max_size=2)
objects = st.recursive(
    st.dictionaries(names, st.integers(0, 2) | st.lists(st.integers(0, 2), max_size=2), max_size=3),
    lambda inner: st.dictionaries(names, st.integers(0, 2) | inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        # Origin: appendix A of RFC 7396.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_the_merge_patch_rfc_hold(target: Json, patch: Json, result: Json) -> None:
    before = deepcopy(target)
    assert merge(target, patch) == result
    assert target == before


@given(objects, objects)
def test_a_merge_patch_twice_is_once(target: Json, patch: Json) -> None:
    once = merge(target, patch)
    assert merge(once, patch) == once


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": True},
        {"op": "test", "path": "/a"},
        {"op": "remove", "path": ""},
        {"op": "remove", "path": "/list/7"},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "remove", "path": "/list/\N{SUPERSCRIPT TWO}"},
        pytest.param({"op": "remove", "path": f"/list/{'0' * 5000}"}, id="remove at more digits than any index has"),
        {"op": "add", "path": "a", "value": 1},
        {"op": "replace", "path": "/list/-", "value": 1},
    ],
    ids=lambda operation: f"{operation['op']} {operation['path'] or 'root'}",
)
def test_what_cannot_be_carried_out_is_refused(operation: Json) -> None:
    with pytest.raises(StatusError) as refused:
        json_patch({"a": 1, "list": [1]}, [operation])
    assert refused.value.code == 422


Fields = dict[tuple[str, ...], tuple[Any, set[str]]]

SCHEMA: Schema = SchemaBuilder({}).build(
    {
        "type": "object",
        "properties": {
            "settings": {"type": "object", "additionalProperties": {"type": "integer"}},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "parts": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
            "whole": {"type": "array", "items": {"type": "integer"}},
        },
    }
)
field_names = st.sampled_from("abc")
sizes = st.integers(0, 2)
configurations = st.fixed_dictionaries(
    {},
    optional={
        "settings": st.dictionaries(field_names, sizes, min_size=1, max_size=3),
        "tags": st.lists(field_names, unique=True, min_size=1, max_size=3),
        "parts": st.dictionaries(field_names, st.none() | sizes, min_size=1, max_size=3).map(
            lambda parts: [
                {"name": name} if size is None else {"name": name, "size": size} for name, size in parts.items()
            ]
        ),
        "whole": st.lists(sizes, min_size=1, max_size=2),
    },
)
applies = st.lists(st.tuples(st.sampled_from(["one", "two", "three"]), configurations, st.booleans()), max_size=8)


def fields_of(configuration: Json) -> dict[tuple[str, ...], Any]:
    """Every field that a configuration says, with its value."""
    fields: dict[tuple[str, ...], Any] = {}
    fields |= {("settings", key): value for key, value in configuration.get("settings", {}).items()}
    fields |= {("tags", tag): tag for tag in configuration.get("tags", ())}
    for part in configuration.get("parts", ()):
        fields |= {("parts", part["name"], key): value for key, value in part.items()}
    if "whole" in configuration:
        fields["whole",] = configuration["whole"]
    return fields


def apply_to_model(model: Fields, manager: str, said: dict[tuple[str, ...], Any], *, force: bool) -> bool:
    """Whether the model takes it; a field of another with another value is a conflict unless forced."""
    conflicts = [
        path for path, value in said.items() if path in model and model[path][0] != value and model[path][1] - {manager}
    ]
    if conflicts and not force:
        return False
    for path in list(model):
        model[path][1].discard(manager)
    for path, value in said.items():
        owners = model[path][1] if path in model and model[path][0] == value else set[str]()
        model[path] = (value, owners | {manager})
    for path in [path for path, (_, owners) in model.items() if not owners]:
        del model[path]
    return True


@given(applies)
def test_any_sequence_of_applies_ends_as_the_model_says(steps: list[tuple[str, Json, bool]]) -> None:
    live: Json = {}
    claims: Claims = {}
    model: Fields = {}
    for moment, (manager, configuration, force) in enumerate(steps):
        writer = FieldWriter(manager, "v1", "", str(moment))
        if apply_to_model(model, manager, fields_of(configuration), force=force):
            live, claims = apply(live, configuration, claims, SCHEMA, writer, force=force)
        else:
            with pytest.raises(StatusError, match="Apply failed"):
                apply(live, configuration, claims, SCHEMA, writer, force=force)
        assert fields_of(live) == {path: value for path, (value, _) in model.items()}


@given(applies)
def test_the_same_apply_again_changes_nothing(steps: list[tuple[str, Json, bool]]) -> None:
    live: Json = {}
    claims: Claims = {}
    for manager, configuration, _ in steps:
        writer = FieldWriter(manager, "v1", "", "1")
        live, claims = apply(live, configuration, claims, SCHEMA, writer, force=True)
        later = FieldWriter(manager, "v1", "", "2")
        assert apply(live, configuration, claims, SCHEMA, later, force=False) == (live, claims)
