"""Custom resource definitions: when a resource is served, what its schema does, and how it ends."""

import json
import secrets
from typing import Any

import pytest

from rigs.clusterclient import TABLE, ClusterClient
from rigs.customresources import DEFINITIONS, SPEC, Webs, define, definition, is_established
from rigs.waiting import until


@pytest.fixture
def group() -> str:
    return f"g{secrets.token_hex(4)}.example.com"


async def test_a_resource_is_served_once_its_definition_is_established(api: ClusterClient, group: str) -> None:
    path = f"/apis/{group}/v1/rocks"
    assert (await api.get(path)).code == 404
    made = await api.create(DEFINITIONS, definition(group, "rocks", "Rock"))
    assert made.code == 201
    assert made.body["spec"]["names"] == {
        "plural": "rocks",
        "singular": "rock",
        "kind": "Rock",
        "listKind": "RockList",
    }
    assert made.metadata["generation"] == 1
    await until(lambda: is_established(api, f"rocks.{group}"), "the definition established")
    established = await api.get(f"{DEFINITIONS}/rocks.{group}")
    assert {condition["type"] for condition in established.body["status"]["conditions"]} >= {
        "NamesAccepted",
        "Established",
    }
    assert established.body["status"]["storedVersions"] == ["v1"]
    assert established.metadata["generation"] == 1
    assert (await api.get(path)).body["kind"] == "RockList"


async def test_the_schema_of_a_resource_is_published(api: ClusterClient, webs: Webs) -> None:
    kind = {"group": "contract.example.com", "version": "v1", "kind": "Web"}
    path = f"apis/{webs.api_version}"

    async def published() -> Any:
        index = json.loads((await api.get("/openapi/v3")).raw)["paths"]
        if path not in index:
            return None
        document = json.loads((await api.get(index[path]["serverRelativeURL"])).raw)
        found = document["components"]["schemas"].values()
        return next((each for each in found if each.get("x-kubernetes-group-version-kind") == [kind]), None)

    schema = await until(published, "the schema")
    spec, plain = schema["properties"]["spec"], ("image", "replicas", "mode", "parts", "settings", "nested")
    assert (spec["required"], {*spec["properties"]}) == (SPEC["required"], {*SPEC["properties"]})
    assert {name: spec["properties"][name] for name in plain} == {name: SPEC["properties"][name] for name in plain}
    assert {"apiVersion", "kind", "metadata", "spec", "status"} == {*schema["properties"]}


async def test_a_cluster_scoped_resource_has_no_namespace_and_ends_with_its_definition(
    api: ClusterClient, namespace: str, group: str
) -> None:
    await define(api, definition(group, "rocks", "Rock", scope="Cluster"))
    path = f"/apis/{group}/v1/rocks"
    rock = {"apiVersion": f"{group}/v1", "kind": "Rock", "metadata": {"name": "a"}, "spec": {"image": "one"}}
    made = await api.create(path, rock)
    assert "namespace" not in made.metadata
    assert (await api.apply(f"{path}/b", {**rock, "metadata": {"name": "b"}})).code == 201
    assert (await api.get(path)).names == ["a", "b"]
    assert (await api.get(f"/apis/{group}/v1/namespaces/{namespace}/rocks")).code == 404
    deleted = await api.delete(f"{DEFINITIONS}/rocks.{group}")
    assert deleted.metadata["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]


async def test_versions_of_a_resource_are_views_of_one_object(api: ClusterClient, namespace: str, group: str) -> None:
    manifest = definition(group, "rocks", "Rock")
    (version,) = manifest["spec"]["versions"]
    manifest["spec"]["versions"].append({**version, "name": "v1beta1", "storage": False})
    await define(api, manifest)
    new, old = (f"/apis/{group}/{name}/namespaces/{namespace}/rocks" for name in ("v1", "v1beta1"))
    rock = {"apiVersion": f"{group}/v1beta1", "kind": "Rock", "metadata": {"name": "a"}, "spec": {"image": "one"}}
    made = await api.create(old, rock)
    assert made.body["apiVersion"] == f"{group}/v1beta1"
    seen = await api.get(f"{new}/a")
    assert seen.body["apiVersion"] == f"{group}/v1"
    assert seen.version == made.version
    assert [item["apiVersion"] for item in (await api.get(old)).body["items"]] == [f"{group}/v1beta1"]
    before = str(int(made.version) - 1)
    (event,) = await api.watched(old, 1, resourceVersion=before)
    assert event["object"]["apiVersion"] == f"{group}/v1beta1"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"metadata": {"name": "other.example.com"}}, "metadata.name"),
        ({"spec": {"scope": "Galaxy"}}, "spec.scope"),
    ],
    ids=["name", "scope"],
)
async def test_bad_definitions_are_refused(api: ClusterClient, group: str, change: dict[str, Any], field: str) -> None:
    manifest = definition(group, "rocks", "Rock")
    for key, value in change.items():
        manifest[key] = {**manifest[key], **value}
    refused = await api.create(DEFINITIONS, manifest)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert field in {name for name, _ in refused.faults}


async def test_a_definition_needs_one_stored_version_and_schemas(api: ClusterClient, group: str) -> None:
    unstored = definition(group, "rocks", "Rock", storage=False)
    assert (await api.create(DEFINITIONS, unstored)).code == 422
    unshaped = definition(group, "rocks", "Rock", schema={})
    assert (await api.create(DEFINITIONS, unshaped)).code == 422


@pytest.mark.parametrize(
    ("spec", "faults"),
    [
        ({}, {("spec.image", "FieldValueRequired")}),
        ({"image": 5}, {("spec.image", "FieldValueTypeInvalid")}),
        ({"image": "one", "replicas": "x"}, {("spec.replicas", "FieldValueTypeInvalid")}),
        ({"image": "one", "replicas": -1}, {("spec.replicas", "FieldValueInvalid")}),
        ({"image": "one", "mode": "odd"}, {("spec.mode", "FieldValueNotSupported")}),
        ({"image": "one", "port": True}, {("spec.port", "FieldValueTypeInvalid")}),
        ({"image": "one", "parts": [{"name": "x"}, {"name": "x"}]}, {("spec.parts[1]", "FieldValueDuplicate")}),
        ({"image": "one", "parts": [{"size": 1}]}, {("spec.parts[0].name", "FieldValueRequired")}),
        ({"image": "one", "tags": ["x", "x"]}, {("spec.tags[1]", "FieldValueDuplicate")}),
        ({"image": "one", "settings": {"k": 1}}, {("spec.settings.k", "FieldValueTypeInvalid")}),
        ("text", {("spec", "FieldValueTypeInvalid")}),
        (
            {"image": 5, "replicas": "x"},
            {("spec.image", "FieldValueTypeInvalid"), ("spec.replicas", "FieldValueTypeInvalid")},
        ),
    ],
    ids=lambda value: "" if isinstance(value, set) else str(value),
)
async def test_objects_that_break_their_schema_are_refused(
    api: ClusterClient, webs: Webs, spec: Any, faults: set[tuple[str, str]]
) -> None:
    refused = await api.create(webs.path, webs.manifest("a", spec))
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.faults == faults
    assert refused.body["message"].startswith('Web.contract.example.com "a" is invalid: ')
    details = refused.body["details"]
    assert (details["name"], details["group"], details["kind"]) == ("a", "contract.example.com", "Web")


async def test_unknown_fields_are_pruned_except_where_the_schema_keeps_them(api: ClusterClient, webs: Webs) -> None:
    spec: dict[str, Any] = {"image": "one", "bogus": 1, "nested": {"x": "1", "z": 1}, "bare": {"x": 1}}
    spec["free"] = {"any": {"thing": [1]}}
    made = await api.create(webs.path, {**webs.manifest("a", spec), "extra": 1})
    assert made.code == 201
    kept = {"nested": {"x": "1"}, "bare": {}, "free": {"any": {"thing": [1]}}}
    assert made.body["spec"] == {"image": "one", "replicas": 1, **kept}
    assert "extra" not in made.body
    assert len(made.warnings) == 4
    strict = await api.create(webs.path, webs.manifest("b", {"image": "one", "bogus": 1}), fieldValidation="Strict")
    assert (strict.code, strict.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.bogus"' in strict.body["message"]


async def test_defaults_fill_what_is_absent_and_null_means_absent_unless_allowed(
    api: ClusterClient, webs: Webs
) -> None:
    assert (await webs.create("a")).body["spec"] == {"image": "one", "replicas": 1}
    nulls = {"image": "one", "replicas": None, "mode": None, "note": None}
    assert (await webs.create("b", nulls)).body["spec"] == {"image": "one", "replicas": 1, "note": None}
    maps = {"settings": {"a": None, "b": "c"}, "free": {"a": None}}
    assert (await webs.create("maps", {"image": "one", **maps})).body["spec"] == {
        "image": "one",
        "replicas": 1,
        "settings": {"b": "c"},
        "free": {"a": None},
    }
    assert (await webs.create("c", {"image": "one", "replicas": 0})).body["spec"]["replicas"] == 0
    gone = await api.merge(webs.at("c"), {"spec": {"replicas": None}})
    assert gone.body["spec"]["replicas"] == 1


async def test_an_object_without_its_required_part_is_accepted_when_the_part_is_optional(
    api: ClusterClient, webs: Webs
) -> None:
    made = await api.create(webs.path, webs.manifest("a"))
    assert made.code == 201
    assert "spec" not in made.body


async def test_a_body_must_say_what_it_is(api: ClusterClient, webs: Webs) -> None:
    nameless = {"metadata": {"name": "a"}, "spec": {"image": "one"}}
    refused = await api.create(webs.path, nameless)
    assert (refused.code, refused.reason) == (400, "BadRequest")
    other_version = {**webs.manifest("a", {"image": "one"}), "apiVersion": "v1"}
    assert (await api.create(webs.path, other_version)).code == 400
    other_kind = {**webs.manifest("a", {"image": "one"}), "kind": "Other"}
    refused = await api.create(webs.path, other_kind)
    assert (refused.code, refused.faults) == (422, {("kind", "FieldValueInvalid")})
    bad_labels = webs.manifest("a", {"image": "one"}, labels={"a": 1})
    refused = await api.create(webs.path, bad_labels)
    assert (refused.code, refused.reason) == (400, "BadRequest")


async def test_columns_and_selectable_fields_are_those_of_the_definition(
    api: ClusterClient, namespace: str, group: str
) -> None:
    manifest = definition(
        group,
        "rocks",
        "Rock",
        additionalPrinterColumns=[{"name": "Image", "type": "string", "jsonPath": ".spec.image"}],
        selectableFields=[{"jsonPath": ".spec.image"}],
    )
    await define(api, manifest)
    path = f"/apis/{group}/v1/namespaces/{namespace}/rocks"
    for name, image in (("a", "one"), ("b", "two")):
        rock = {"apiVersion": f"{group}/v1", "kind": "Rock", "metadata": {"name": name}, "spec": {"image": image}}
        await api.create(path, rock)
    assert (await api.get(path, fieldSelector="spec.image=two")).names == ["b"]
    table = (await api.get(path, accept=TABLE)).body
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Image"]
    assert [row["cells"] for row in table["rows"]] == [["a", "one"], ["b", "two"]]


async def test_a_changed_definition_is_served_as_changed(api: ClusterClient, namespace: str, group: str) -> None:
    await define(api, definition(group, "rocks", "Rock"))
    path = f"/apis/{group}/v1/namespaces/{namespace}/rocks"
    rock = {"apiVersion": f"{group}/v1", "kind": "Rock", "metadata": {"name": "a"}, "spec": {"image": "one", "new": 1}}
    assert "new" not in (await api.create(path, rock)).body["spec"]
    field = {"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/new"}
    changed = await api.change(f"{DEFINITIONS}/rocks.{group}", {**field, "value": {"type": "integer"}})
    assert changed.code == 200
    assert changed.metadata["generation"] == 2

    async def is_kept() -> bool:
        patched = await api.merge(f"{path}/a", {"spec": {"new": 1}})
        return bool(patched.body["spec"].get("new") == 1)

    await until(is_kept, "the new field kept")
