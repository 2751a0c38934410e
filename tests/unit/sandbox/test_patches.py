"""Merge patches by the examples of their RFC; JSON patches that cannot be carried out."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog_base.wire.projection import merge
from levelog_sandbox import StatusError
from levelog_sandbox.fields.patches import json_patch

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
