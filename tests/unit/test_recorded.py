import copy
import json
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelog import Struct
from levelog.calls.fieldreads import MOST, decode, digest_of, encode
from levelog_base.mappings import Look, Notes, RecordedMapping, recorded
from levelog_base.wire.canonical import canonical
from rigs.run.examples import examples

BODY: dict[str, Any] = {
    "metadata": {"name": "shop", "labels": {"app": "web"}},
    "spec": {"replicas": 3, "image": "nginx", "ports": [80, 443], "strategy": {"type": "Recreate"}},
    "status": {"ready": 1, "conditions": [{"type": "Ready", "status": "True"}]},
}


def seen_by(look_at: Callable[[Any], object], body: Any = BODY) -> set[tuple[Any, ...]]:
    notes = Notes()
    look_at(RecordedMapping(body, notes))
    return {(look.value, *path) for look, path in notes.reads}


@pytest.mark.parametrize(
    ("look_at", "reads"),
    [
        (lambda web: web["spec"]["replicas"], {("value", "spec"), ("value", "spec", "replicas")}),
        (lambda web: web.get("nothing", 1), {("value", "nothing")}),
        (lambda web: "status" in web, {("is_there", "status")}),
        (lambda web: 1 in web, set()),
        (len, {("length",)}),
        (bool, {("is_filled",)}),
        (lambda web: [key for key in web], {("keys",)}),  # noqa: C416 - list() asks for the length too
        (lambda web: web["spec"].keys() & {"image"}, {("value", "spec"), ("is_there", "spec", "image")}),
        (
            lambda web: dict(web["metadata"]["labels"]),
            {
                ("value", "metadata"),
                ("value", "metadata", "labels"),
                ("keys", "metadata", "labels"),
                ("value", "metadata", "labels", "app"),
            },
        ),
        (lambda web: web == BODY, {("whole",)}),
        (repr, {("whole",)}),
        (lambda web: web.to_dict(), {("whole",)}),
        (copy.deepcopy, {("whole",)}),
        (pickle.dumps, {("whole",)}),
        (canonical, {("whole",)}),
        (
            lambda web: web["spec"]["ports"][-1],
            {("value", "spec"), ("value", "spec", "ports"), ("value", "spec", "ports", -1)},
        ),
        (
            lambda web: canonical({"wanted": [web["spec"]["ports"]]}),
            {("value", "spec"), ("value", "spec", "ports"), ("whole", "spec", "ports")},
        ),
    ],
)
def test_each_way_of_reading_is_noted(look_at: Callable[[Any], object], reads: set[tuple[Any, ...]]) -> None:
    assert seen_by(look_at) == reads


def test_a_search_in_a_list_reads_up_to_what_it_finds() -> None:
    ports = seen_by(lambda web: 80 in web["spec"]["ports"])
    assert ("value", "spec", "ports", 0) in ports
    assert ("value", "spec", "ports", 1) not in ports


def test_it_reads_as_a_dict_and_a_list_do() -> None:
    web: Any = RecordedMapping(BODY, Notes())
    assert web == BODY
    assert BODY == web  # noqa: SIM300 - the other side's operator
    assert not web != BODY  # noqa: SIM202 - the operator is the subject
    assert web["spec"]["ports"] == [80, 443]
    assert web["spec"]["ports"][0:5] == [80, 443]
    assert web["spec"]["ports"].index(443) == 1
    assert [*reversed(web["spec"]["ports"])] == [443, 80]
    assert web["spec"]["ports"] + [1] == [80, 443, 1]
    assert {**web["metadata"]["labels"], "a": "b"} == web["metadata"]["labels"] | {"a": "b"}
    assert list(web["spec"]) == ["image", "ports", "replicas", "strategy"]
    match web:
        case {"spec": {"strategy": {"type": kind}}}:
            assert kind == "Recreate"
        case _:
            pytest.fail("a mapping pattern does not match")
    assert str(web["metadata"]["labels"]) == "{'app': 'web'}"


def test_what_is_copied_is_plain_and_shares_nothing() -> None:
    web: Any = RecordedMapping(BODY, Notes())
    for copied in (web["spec"].to_dict(), copy.deepcopy(web["spec"]), pickle.loads(pickle.dumps(web["spec"]))):
        assert type(copied) is dict
        copied["ports"].append(1)
    assert BODY["spec"]["ports"] == [80, 443]


def test_what_reads_past_the_methods_is_refused_and_not_wrong() -> None:
    with pytest.raises(TypeError, match="RecordedMapping is not JSON serializable"):
        json.dumps(RecordedMapping(BODY, Notes()))


def test_a_part_can_be_converted_to_a_struct() -> None:
    class Spec(Struct):
        replicas: int

    assert msgspec.convert(RecordedMapping(BODY, Notes())["spec"].to_dict(), Spec) == Spec(replicas=3)


def test_what_lies_below_a_whole_is_not_stored() -> None:
    below = [(Look.WHOLE, ("spec",)), (Look.KEYS, ("spec",)), (Look.VALUE, ("spec", "image"))]
    stored = encode([*below, (Look.KEYS, ("status",)), (Look.LENGTH, ("status",))])
    assert stored == b'[["is_there","metadata","deletionTimestamp"],["keys","status"],["whole","spec"]]'
    assert decode(stored)[0] == (Look.IS_THERE, ("metadata", "deletionTimestamp"))


def test_a_function_that_looks_everywhere_depends_on_everything() -> None:
    stored = encode([(Look.VALUE, ("spec", str(n))) for n in range(MOST)])
    assert decode(stored) == [(Look.WHOLE, ())]


scalars = st.sampled_from([None, True, False, 0, 1, 1.0, "", "a", "1"])
names = st.sampled_from("abc")
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2), max_leaves=4
)
bodies = st.dictionaries(names, values, min_size=1, max_size=2)
looks = st.sampled_from(["in", "len", "bool", "iterate", "items", "copy", "repr", "encode"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("get"), names | st.integers(-2, 1)),
        st.tuples(looks, names),
        st.tuples(st.just("top"), names),
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def edited(draw: st.DrawFn, body: dict[str, Any]) -> dict[str, Any]:
    """The body with something changed, somewhere."""
    body = copy.deepcopy(body)
    here: Any = body
    for _ in range(draw(st.integers(0, 2))):
        inside = [part for part in (here.values() if isinstance(here, dict) else here) if isinstance(part, dict | list)]
        here = draw(st.sampled_from(inside)) if inside else here
    if isinstance(here, dict):
        name = draw(st.sampled_from(sorted(here)) if here else names)
        value = here.pop(name, None)
        match draw(st.sampled_from(["remove", "rename", "replace"])):
            case "rename":
                here[draw(names)] = value
            case "replace":
                here[name] = draw(values)
            case _:
                pass
    else:
        here[draw(st.integers(0, len(here))) :] = draw(st.lists(values, max_size=1))
    return body


MISSING: Any = object()


def run(program: list[tuple[str, Any]], top: Any) -> list[Any]:
    """Walk through an object as the program says, and tell everything that came to light on the way."""
    told: list[Any] = []
    here: Any = top
    for verb, at in program:
        is_mapping = isinstance(here, Mapping)
        match verb:
            case "get":
                try:
                    found: Any = here[at] if isinstance(here, Mapping) == isinstance(at, str) else MISSING
                except (KeyError, IndexError):
                    found = MISSING
                has_parts = hasattr(found, "__len__") and not isinstance(found, str)
                kind = "mapping" if isinstance(found, Mapping) else "list"
                told.append("nothing" if found is MISSING else [kind, 0] if has_parts else [found])
                here = found if has_parts else here
            case "in":
                told.append(at in here if is_mapping else None)
            case "len":
                told.append(len(here))
            case "bool":
                told.append(bool(here))
            case "iterate":
                told.append(list(here) if is_mapping else len(here))
            case "items":
                told.append([[*each] for each in here.items()] if is_mapping else list(here))
            case "copy":
                told.append(copy.deepcopy(here))
            case "repr":
                told.append(repr(here))
            case "encode":
                told.append(canonical(here).decode())
            case _:
                here = top
    return told


@settings(max_examples=examples(500))
@given(one=bodies, program=steps, data=st.data())
def test_invariant_6_bodies_have_one_digest_exactly_where_the_function_sees_the_same(
    one: dict[str, Any], program: list[tuple[str, Any]], data: st.DataObject
) -> None:
    other = data.draw(edited(one))
    notes = Notes()
    told = canonical(run(program, RecordedMapping(one, notes)))
    fields_read = decode(encode(notes.reads))
    elsewhere = canonical(run(program, RecordedMapping(other, Notes())))
    assert (digest_of(one, fields_read) == digest_of(other, fields_read)) == (told == elsewhere)


@given(body=bodies, program=steps)
def test_a_recorded_object_tells_what_a_plain_one_does(body: dict[str, Any], program: list[tuple[str, Any]]) -> None:
    shuffled = recorded(dict(reversed(body.items())), Notes())
    ordered = msgspec.json.decode(canonical(body))
    assert canonical(run(program, shuffled)) == canonical(run(program, ordered))
