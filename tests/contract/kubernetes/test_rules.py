"""Rules in CEL (x-kubernetes-validations) of custom resources: what they refuse, and in which words."""

import secrets
from typing import Any

import pytest_asyncio

from rigs.clusterclient import Answer, ClusterClient
from rigs.customresources import DEFINITIONS, define, definition
from rigs.waiting import until

Json = dict[str, Any]

TEXT: Json = {"type": "string", "maxLength": 9}
NUMBER: Json = {"type": "integer"}


def ruled(schema: Json, *rules: Json | str) -> Json:
    found = [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]
    return {**schema, "x-kubernetes-validations": found}


def mapping(below: Json) -> Json:
    return {"type": "object", "maxProperties": 4, "additionalProperties": below}


def listing(below: Json, **more: Any) -> Json:
    return {"type": "array", "maxItems": 4, "items": below, **more}


def fields(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


PARTS: Json = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
PART = {**fields(name=TEXT, n=NUMBER), "required": ["name"]}
EITHER: Json = {"x-kubernetes-int-or-string": True}
SPEC = fields(
    size=NUMBER,
    least=NUMBER,
    bounds=ruled(
        fields(size=NUMBER, least=NUMBER),
        {"rule": "self.least <= self.size", "message": " size is below least ", "fieldPath": ".size"},
    ),
    region=ruled(TEXT, {"rule": "self == oldSelf", "message": "does not move"}),
    first=ruled(TEXT, {"rule": "oldSelf.hasValue() || self == 'a'", "optionalOldSelf": True}),
    parts=listing(
        ruled(
            PART,
            {"rule": "self.n > 0", "messageExpression": "'part ' + self.name + ' is empty'"},
            {"rule": "self.n >= oldSelf.n", "message": "shrinks"},
        ),
        **PARTS,
    ),
    counts=mapping(ruled(NUMBER, {"rule": "self > 0", "reason": "FieldValueForbidden", "message": "no"})),
    grown=mapping(fields(x=ruled(NUMBER, "self >= oldSelf"))),
    rows=listing(listing(ruled(NUMBER, "self > 5"))),
    needed=ruled(NUMBER, {"rule": "self > 0", "reason": "FieldValueRequired"}),
    twin=ruled(NUMBER, {"rule": "self > 0", "reason": "FieldValueDuplicate"}),
    said=ruled(
        NUMBER,
        {"rule": "self > 0", "messageExpression": "''"},
        {"rule": "self > 1", "messageExpression": "string(1 / self)", "message": "instead"},
        {"rule": "self > 2", "messageExpression": "'a\\nb'", "message": "one line"},
    ),
    divided=ruled(NUMBER, "1 / self > 0"),
    third=ruled(listing(NUMBER), {"rule": "self[2] > 0", "message": "third"}),
    key=ruled(mapping(TEXT), {"rule": "self['a'] == 'b'", "fieldPath": "['a']"}),
    escaped=ruled(
        {"type": "object", "properties": {"a-b": NUMBER, "in": NUMBER, "u__s": NUMBER}},
        {"rule": "self.a__dash__b > 1", "fieldPath": "['a-b']"},
        "self.__in__ > 1",
        "self.u__underscores__s > 1",
    ),
    port=ruled(EITHER, "type(self) == int ? self > 0 : self != ''"),
    untyped=ruled(EITHER, "self == 5 || self.size() == 1"),
    when=ruled({"type": "string", "format": "date-time"}, "self > timestamp('2020-01-01T00:00:00Z')"),
    day=ruled({"type": "string", "format": "date"}, "self.getFullYear() > 2020"),
    times=ruled(
        fields(at={"type": "string", "format": "date-time"}, lasts={"type": "string", "format": "duration"}),
        "self.at + self.lasts > timestamp('2020-01-01T00:00:00Z')",
    ),
    bytes=ruled({"type": "string", "format": "byte", "maxLength": 8}, "self == b'x'"),
    ratio=ruled({"type": "number"}, "self * 2.0 < 3.0", "self > 0.5"),
    note=ruled({**TEXT, "nullable": True}, "self.size() > 0"),
    noted=ruled(fields(x={**TEXT, "nullable": True}), "has(self.x)"),
    maybe=ruled(fields(x=TEXT), "self.?x.orValue('n') == 'n'"),
    found=ruled(TEXT, "self.findAll('[0-9]').size() == 2", "self.find('[a-z]+') == 'ab'", "self.lowerAscii() == self"),
    sorted=ruled(listing(NUMBER), "self.isSorted()", "self.sum() < 10", "self.max() < 9", "self.min() > 0"),
    tags=ruled(listing(TEXT, **{"x-kubernetes-list-type": "set"}), "sets.contains(self, ['a'])"),
    kept=ruled(fields(a=NUMBER, b=NUMBER), "self.a > 5"),
)
SCHEMA = ruled(
    fields(spec=SPEC, status=fields(n=ruled(NUMBER, "self >= oldSelf"))),
    "self.metadata.name != 'bad'",
    {"rule": "!has(self.spec.size) || self.spec.size > self.spec.least", "message": "too small"},
)
NOT_CHECKED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
    "existing errors to complete validation"
)
CASES: dict[str, tuple[Json, list[str]]] = {
    "an error at the root": ({"size": 1, "least": 2}, ["<nil>: Invalid value: too small"]),
    "no such field": ({"size": 1}, ['<nil>: Invalid value: "object": no such key: least evaluating rule: too small']),
    "a path of a field": (
        {"bounds": {"size": 1, "least": 2}},
        ["spec.bounds.size: Invalid value: size is below least"],
    ),
    "nothing to compare with": ({"region": "a"}, []),
    "optional, absent": (
        {"first": "b"},
        ["spec.first: Invalid value: \"b\": failed rule: oldSelf.hasValue() || self == 'a'"],
    ),
    "optional, absent and well": ({"first": "a"}, []),
    "an expression for the message": (
        {"parts": [{"name": "p", "n": 1}, {"name": "q", "n": 0}]},
        ["spec.parts[1]: Invalid value: part q is empty"],
    ),
    "no such key": (
        {"parts": [{"name": "p"}]},
        ['spec.parts[0]: Invalid value: "object": no such key: n evaluating rule: self.n > 0'],
    ),
    "keys of a map": ({"counts": {"k": 0, "k.l": 1}}, ["spec.counts[k]: Forbidden: no"]),
    "a list of lists": ({"rows": [[6], [7, 5]]}, ["spec.rows[1][1]: Invalid value: 5: failed rule: self > 5"]),
    "a value that is required": ({"needed": 0}, ["spec.needed: Required value: failed rule: self > 0"]),
    "a duplicate": ({"twin": 0}, ["spec.twin: Duplicate value: 0"]),
    "expressions of messages that fail": (
        {"said": 0},
        [
            "spec.said: Invalid value: 0: failed rule: self > 0",
            "spec.said: Invalid value: 0: instead",
            "spec.said: Invalid value: 0: one line",
        ],
    ),
    "division by zero": (
        {"divided": 0},
        ['spec.divided: Invalid value: "integer": division by zero evaluating rule: 1 / self > 0'],
    ),
    "index out of bounds": (
        {"third": [1]},
        ['spec.third: Invalid value: "array": index out of bounds: 2 evaluating rule: third'],
    ),
    "a key as the path": ({"key": {"a": "c"}}, ["spec.key.[a]: Invalid value: failed rule: self['a'] == 'b'"]),
    "a field as the path": (
        {"escaped": {"a-b": 1, "in": 2, "u__s": 2}},
        ["spec.escaped.a-b: Invalid value: failed rule: self.a__dash__b > 1"],
    ),
    "names that are escaped": ({"escaped": {"a-b": 2, "in": 2, "u__s": 2}}, []),
    "a number of either": (
        {"port": 0},
        ["spec.port: Invalid value: 0: failed rule: type(self) == int ? self > 0 : self != ''"],
    ),
    "a text of either": (
        {"port": ""},
        ["spec.port: Invalid value: \"\": failed rule: type(self) == int ? self > 0 : self != ''"],
    ),
    "no such overload": (
        {"untyped": 3},
        [
            "spec.untyped: Invalid value: \"\": 'no such overload: size': call arguments "
            "did not match a supported operator, function or macro signature for rule: self == 5 || self.size() == 1"
        ],
    ),
    "a time": (
        {"when": "2019-01-01T00:00:00Z"},
        ["spec.when: Invalid value: \"2019-01-01T00:00:00Z\": failed rule: self > timestamp('2020-01-01T00:00:00Z')"],
    ),
    "a day": ({"day": "2021-02-03"}, []),
    "times below": (
        {"times": {"at": "2019-12-31T23:00:00Z", "lasts": "59m59s"}},
        ["spec.times: Invalid value: failed rule: self.at + self.lasts > timestamp('2020-01-01T00:00:00Z')"],
    ),
    "times below and well": ({"times": {"at": "2019-12-31T23:00:00.5Z", "lasts": "1h0m1s"}}, []),
    "bytes": ({"bytes": "eQ=="}, ["spec.bytes: Invalid value: \"eQ==\": failed rule: self == b'x'"]),
    "a whole number is a double": ({"ratio": 1}, []),
    "a double": ({"ratio": 1.5}, ["spec.ratio: Invalid value: 1.5: failed rule: self * 2.0 < 3.0"]),
    "null is not looked at": ({"note": None}, []),
    "null is absent": ({"noted": {"x": None}}, ["spec.noted: Invalid value: failed rule: has(self.x)"]),
    "an optional field": (
        {"maybe": {"x": "y"}},
        ["spec.maybe: Invalid value: failed rule: self.?x.orValue('n') == 'n'"],
    ),
    "a text that is searched": ({"found": "ab12"}, []),
    "a text that is not lower": (
        {"found": "abB12"},
        ['spec.found: Invalid value: "abB12": failed rule: self.lowerAscii() == self'],
    ),
    "a list that is not sorted": ({"sorted": [2, 1]}, ["spec.sorted: Invalid value: failed rule: self.isSorted()"]),
    "an empty list": (
        {"sorted": []},
        [
            'spec.sorted: Invalid value: "array": max called on empty list evaluating rule: self.max() < 9',
            'spec.sorted: Invalid value: "array": min called on empty list evaluating rule: self.min() > 0',
        ],
    ),
    "sets": ({"tags": ["b"]}, ["spec.tags: Invalid value: failed rule: sets.contains(self, ['a'])"]),
    "a wrong type hides rules": (
        {"size": "x", "kept": {"a": 1}},
        ['spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"', NOT_CHECKED],
    ),
    "a long text hides rules": (
        {"region": "0123456789", "kept": {"a": 1}},
        ["spec.region: Too long: may not be more than 9 bytes", NOT_CHECKED],
    ),
    "many items hide rules": (
        {"sorted": [1, 2, 3, 4, 5], "kept": {"a": 1}},
        ["spec.sorted: Too many: 5: must have at most 4 items", NOT_CHECKED],
    ),
}
"""By what it is about: a spec, and what is wrong with it."""


class Rocks:
    """Objects of a definition with rules."""

    def __init__(self, api: ClusterClient, group: str, namespace: str) -> None:
        self.api, self.group = api, group
        self.path = f"/apis/{group}/v1/namespaces/{namespace}/rocks"

    async def create(self, name: str, spec: Json, **query: str) -> Answer:
        body = {"apiVersion": f"{self.group}/v1", "kind": "Rock", "metadata": {"name": name}, "spec": spec}
        return await self.api.create(self.path, body, **query)

    async def merge(self, name: str, spec: Json) -> Answer:
        return await self.api.merge(f"{self.path}/{name}", {"spec": spec})


@pytest_asyncio.fixture
async def rocks(api: ClusterClient, namespace: str) -> Rocks:
    return await rocks_of(api, "rules.example.com", namespace)


async def rocks_of(api: ClusterClient, group: str, namespace: str) -> Rocks:
    """The definition is made where it is missing: that costs a kube-apiserver more than all that is done with it."""
    await define(api, definition(group, "rocks", "Rock", schema={"openAPIV3Schema": SCHEMA}))
    return Rocks(api, group, namespace)


def said(answer: Answer) -> list[str]:
    """Field and message of each cause of a refusal."""
    return [f"{cause['field']}: {cause['message']}" for cause in answer.body.get("details", {}).get("causes", ())]


async def test_new_objects_break_rules_and_keep_them(rocks: Rocks) -> None:
    for number, (about, (spec, wrong)) in enumerate(CASES.items()):
        answer = await rocks.create(f"r{number}", spec)
        assert (answer.code, said(answer)) == (422 if wrong else 201, wrong), about
        if wrong:
            shown = wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]"
            assert answer.body["message"] == f'Rock.{rocks.group} "r{number}" is invalid: {shown}'


async def test_a_refusal_has_the_reason_that_its_rule_names(rocks: Rocks) -> None:
    refused = await rocks.create("a", {"counts": {"k": 0}, "needed": 0, "twin": 0, "divided": -1})
    assert refused.faults == {
        ("spec.counts[k]", "FieldValueForbidden"),
        ("spec.needed", "FieldValueRequired"),
        ("spec.twin", "FieldValueDuplicate"),
        ("spec.divided", "FieldValueInvalid"),
    }


async def test_a_rule_of_the_root_sees_the_name_of_the_object(rocks: Rocks) -> None:
    refused = await rocks.create("bad", {})
    assert said(refused) == ["<nil>: Invalid value: failed rule: self.metadata.name != 'bad'"]


async def test_rules_on_transitions_compare_with_the_value_before(rocks: Rocks) -> None:
    parts = [{"name": "p", "n": 2}, {"name": "q", "n": 1}]
    spec = {"region": "a", "first": "a", "parts": parts, "grown": {"k": {"x": 3}}}
    assert (await rocks.create("a", spec)).code == 201
    assert said(await rocks.merge("a", {"region": "b"})) == ['spec.region: Invalid value: "b": does not move']
    assert (await rocks.merge("a", {"first": "b"})).code == 200
    moved = [{"name": "q", "n": 1}, {"name": "p", "n": 1}]  # an item is found by its key, not by its place
    assert said(await rocks.merge("a", {"parts": moved})) == ["spec.parts[1]: Invalid value: shrinks"]
    assert (await rocks.merge("a", {"parts": [{"name": "r", "n": 1}]})).code == 200
    shrunk = "spec.grown[k].x: Invalid value: 2: failed rule: self >= oldSelf"
    assert said(await rocks.merge("a", {"grown": {"k": {"x": 2}}})) == [shrunk]
    assert (await rocks.merge("a", {"grown": {"l": {"x": 1}}})).code == 200


async def test_apply_and_writes_of_a_status_are_checked_too(rocks: Rocks) -> None:
    manifest = {"apiVersion": f"{rocks.group}/v1", "kind": "Rock", "metadata": {"name": "a"}}
    wrong = {**manifest, "spec": {"twin": 0}}
    assert (await rocks.api.apply(f"{rocks.path}/a", wrong)).code == 422
    assert (await rocks.api.apply(f"{rocks.path}/a", {**manifest, "spec": {"twin": 1}})).code == 201
    assert (await rocks.api.apply(f"{rocks.path}/a", wrong)).code == 422
    status = f"{rocks.path}/a/status"
    assert (await rocks.api.merge(status, {"status": {"n": 3}})).code == 200
    refused = await rocks.api.merge(status, {"status": {"n": 2}})
    assert said(refused) == ["status.n: Invalid value: 2: failed rule: self >= oldSelf"]


async def test_a_new_rule_that_an_old_value_breaks_holds_once_that_is_changed(
    api: ClusterClient, namespace: str
) -> None:
    rocks = await rocks_of(api, f"g{secrets.token_hex(4)}.example.com", namespace)
    assert (await rocks.create("a", {"kept": {"a": 6, "b": 1}})).code == 201
    where = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/kept/x-kubernetes-validations/0/rule"
    change = {"op": "replace", "path": where, "value": "self.a > 9"}
    assert (await rocks.api.change(f"{DEFINITIONS}/rocks.{rocks.group}", change)).code == 200

    async def holds() -> bool:
        return (await rocks.create("b", {"kept": {"a": 8}}, dryRun="All")).code == 422

    await until(holds, "the new rule")
    assert (await rocks.merge("a", {"twin": 1})).code == 200
    assert said(await rocks.merge("a", {"kept": {"b": 2}})) == ["spec.kept: Invalid value: failed rule: self.a > 9"]
