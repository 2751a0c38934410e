"""Objects of a core kind: what the server sets, and what it refuses."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rigs.clusterclient import ClusterClient
from rigs.customresources import Webs

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


async def test_a_new_object_gets_a_uid_a_time_and_a_resource_version(api: ClusterClient, config_maps: str) -> None:
    made = await api.create(config_maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    assert made.code == 201
    assert made.body["apiVersion"] == "v1"
    assert made.body["kind"] == "ConfigMap"
    assert UUID.fullmatch(made.metadata["uid"])
    assert made.version.isdigit()
    age = datetime.now(UTC) - datetime.fromisoformat(made.metadata["creationTimestamp"])
    assert abs(age) < timedelta(minutes=5)
    assert "generation" not in made.metadata
    assert (await api.get(f"{config_maps}/a")).body == made.body


async def test_answers_are_compact_json(api: ClusterClient, config_maps: str) -> None:
    await api.create(config_maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    for path in (config_maps, f"{config_maps}/a", f"{config_maps}/absent"):
        raw = (await api.get(path)).raw
        assert b'": ' not in raw
        assert b", " not in raw
        assert b"\n" not in raw.rstrip()


async def test_resource_versions_are_one_increasing_integer_over_all_kinds(api: ClusterClient, namespace: str) -> None:
    paths = [f"/api/v1/namespaces/{namespace}/{kind}" for kind in ("configmaps", "secrets", "configmaps")]
    versions = [
        int((await api.create(path, {"metadata": {"name": f"a{number}"}})).version) for number, path in enumerate(paths)
    ]
    assert versions == sorted(set(versions))


async def test_what_the_server_sets_is_not_taken_from_the_client(api: ClusterClient, config_maps: str) -> None:
    sent = {
        "name": "a",
        "uid": "11111111-1111-1111-1111-111111111111",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "generation": 7,
    }
    made = await api.create(config_maps, {"metadata": sent})
    assert made.metadata["uid"] != sent["uid"]
    assert made.metadata["creationTimestamp"] != sent["creationTimestamp"]
    assert "deletionTimestamp" not in made.metadata


async def test_a_name_is_generated_from_its_prefix(api: ClusterClient, config_maps: str) -> None:
    first = await api.create(config_maps, {"metadata": {"generateName": "made-"}})
    second = await api.create(config_maps, {"metadata": {"generateName": "made-"}})
    assert re.fullmatch(r"made-[a-z0-9]{5}", first.metadata["name"])
    assert first.metadata["name"] != second.metadata["name"]
    assert first.metadata["generateName"] == "made-"


async def test_a_name_that_is_taken_is_refused(api: ClusterClient, config_maps: str) -> None:
    await api.create(config_maps, {"metadata": {"name": "a"}})
    again = await api.create(config_maps, {"metadata": {"name": "a"}})
    assert (again.code, again.reason) == (409, "AlreadyExists")
    assert again.body["message"] == 'configmaps "a" already exists'
    assert again.body["details"] == {"name": "a", "kind": "configmaps"}


async def test_an_absent_object_is_not_found(api: ClusterClient, config_maps: str) -> None:
    absent = await api.get(f"{config_maps}/absent")
    assert absent.code == 404
    assert absent.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "absent" not found',
        "reason": "NotFound",
        "details": {"name": "absent", "kind": "configmaps"},
        "code": 404,
    }


async def test_a_path_is_decoded_once(api: ClusterClient, config_maps: str) -> None:
    refused = await api.get(f"{config_maps}/a%2541")
    assert (refused.code, refused.reason) == (400, "BadRequest")
    assert refused.body["message"] == "Name parameter invalid: \"a%41\": may not contain '%'"


async def test_a_namespace_must_exist(api: ClusterClient) -> None:
    refused = await api.create("/api/v1/namespaces/absent/configmaps", {"metadata": {"name": "a"}})
    assert (refused.code, refused.reason) == (404, "NotFound")
    assert refused.body["message"] == 'namespaces "absent" not found'
    assert (await api.get("/api/v1/namespaces/absent/configmaps")).body["items"] == []


@pytest.mark.parametrize(
    ("metadata", "faults"),
    [
        ({}, {("metadata.name", "FieldValueRequired")}),
        ({"name": "Bad_Name"}, {("metadata.name", "FieldValueInvalid")}),
        ({"name": "a" * 254}, {("metadata.name", "FieldValueInvalid")}),
        ({"name": "a", "labels": {"k": "not a value"}}, {("metadata.labels", "FieldValueInvalid")}),
        ({"name": "a", "labels": {"not a key": "v"}}, {("metadata.labels", "FieldValueInvalid")}),
        ({"name": "a", "finalizers": ["held"]}, {("metadata.finalizers[0]", "FieldValueInvalid")}),
        ({"name": "a", "finalizers": ["a.b/not a name"]}, {("metadata.finalizers", "FieldValueInvalid")}),
        ({"name": "a", "annotations": {"k": "v" * 262144}}, {("metadata.annotations", "FieldValueTooLong")}),
        (
            {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]},
            {("metadata.ownerReferences.uid", "FieldValueInvalid")},
        ),
        (
            {
                "name": "a",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True} for name in "pq"
                ],
            },
            {("metadata.ownerReferences", "FieldValueInvalid")},
        ),
    ],
    ids=[
        "no name",
        "bad name",
        "long name",
        "bad label value",
        "bad label key",
        "finalizer without a domain",
        "bad finalizer",
        "long annotations",
        "owner without uid",
        "two controllers",
    ],
)
async def test_bad_metadata_are_refused_with_the_field(
    api: ClusterClient, config_maps: str, metadata: dict[str, object], faults: set[tuple[str, str]]
) -> None:
    refused = await api.create(config_maps, {"metadata": metadata})
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.faults == faults
    assert refused.body["details"]["kind"] == "ConfigMap"


async def test_null_in_a_map_or_list_is_the_zero_of_what_it_holds(
    api: ClusterClient, config_maps: str, pods: str, webs: Webs
) -> None:
    nulls = {"labels": {"a": None}, "annotations": {"b": None}}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **nulls}, "data": {"x": None}}
    applied = {**config_map, "metadata": {"name": "b", **nulls}}
    config_maps_made = [await api.create(config_maps, config_map), await api.apply(f"{config_maps}/b", applied)]
    assert [made.body["data"] for made in config_maps_made] == [{"x": ""}, {"x": ""}]
    custom = [await webs.create("a", **nulls)]
    custom.append(await api.apply(webs.at("b"), webs.manifest("b", {"image": "one"}, **nulls)))
    for made in config_maps_made + custom:
        assert (made.metadata["labels"], made.metadata["annotations"]) == ({"a": ""}, {"b": ""})
    unowned = await api.create(config_maps, {"metadata": {"name": "c", "ownerReferences": [None]}})
    parts = ("apiVersion", "kind", "name", "uid")
    assert unowned.faults == {(f"metadata.ownerReferences.{part}", "FieldValueInvalid") for part in parts}
    bare = await api.create(pods, {"metadata": {"name": "a"}, "spec": {"containers": [None]}})
    assert bare.faults == {(f"spec.containers[0].{part}", "FieldValueRequired") for part in ("name", "image")}


async def test_what_stands_twice_in_metadata_is_taken(api: ClusterClient, config_maps: str, webs: Webs) -> None:
    owner = {"apiVersion": "v1", "kind": "Secret", "name": "a", "uid": "u"}
    owners = [owner, owner, {**owner, "name": "b"}]
    twice: dict[str, Any] = {"finalizers": ["a.b/c", "a.b/c"], "ownerReferences": owners}
    for made in (await api.create(config_maps, {"metadata": {"name": "a", **twice}}), await webs.create("a", **twice)):
        assert made.code == 201, made.body
        assert made.metadata["finalizers"] == twice["finalizers"]
        assert made.metadata["ownerReferences"] == owners[1:]
        assert len(made.warnings) == 1
        assert made.warnings[0].endswith('duplicate UID(s) observed: u"')


async def test_the_names_of_namespaces_have_no_dots(api: ClusterClient) -> None:
    refused = await api.create("/api/v1/namespaces", {"metadata": {"name": "a.b"}})
    assert refused.code == 422
    assert refused.body["message"].endswith('metadata.name: Invalid value: "a.b": must not contain dots')


@pytest.mark.parametrize(
    "body",
    [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}},
        {"apiVersion": "apps/v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
        {"metadata": {"name": "a", "namespace": "elsewhere"}},
        {"metadata": {"name": "a"}, "data": {"x": 1}},
        {"metadata": {"name": "a"}, "data": "text"},
        [],
        "{nonsense",
    ],
    ids=["kind", "version", "namespace", "type of a value", "type of a field", "a list", "not JSON"],
)
async def test_a_body_that_does_not_fit_is_a_bad_request(api: ClusterClient, config_maps: str, body: object) -> None:
    refused = await api.ask("POST", config_maps, body)
    assert (refused.code, refused.reason) == (400, "BadRequest")


async def test_a_new_object_brings_no_resource_version(api: ClusterClient, config_maps: str) -> None:
    refused = await api.create(config_maps, {"metadata": {"name": "a", "resourceVersion": "5"}})
    assert refused.code == 500
    assert refused.body["message"] == "resourceVersion should not be set on objects to be created"


async def test_a_dry_run_answers_as_if_and_stores_nothing(api: ClusterClient, config_maps: str) -> None:
    tried = await api.create(config_maps, {"metadata": {"name": "a"}, "data": {"x": "1"}}, dryRun="All")
    assert tried.code == 201
    assert tried.body["data"] == {"x": "1"}
    assert tried.metadata["uid"]
    assert (await api.get(f"{config_maps}/a")).code == 404


async def test_unknown_fields_are_dropped_with_a_warning_or_refused_when_strict(
    api: ClusterClient, config_maps: str
) -> None:
    made = await api.create(config_maps, {"metadata": {"name": "a"}, "bogus": 1})
    assert made.code == 201
    assert "bogus" not in made.body
    assert made.warnings == (r'299 - "unknown field \"bogus\""',)
    silent = await api.create(config_maps, {"metadata": {"name": "b"}, "bogus": 1}, fieldValidation="Ignore")
    assert silent.warnings == ()
    strict = await api.create(config_maps, {"metadata": {"name": "c"}, "bogus": 1}, fieldValidation="Strict")
    assert (strict.code, strict.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "bogus"' in strict.body["message"]


async def test_a_secret_keeps_its_texts_as_data(api: ClusterClient, namespace: str) -> None:
    secret = {"metadata": {"name": "a"}, "stringData": {"password": "open"}, "data": {"user": "bWU="}}
    made = await api.create(f"/api/v1/namespaces/{namespace}/secrets", secret)
    assert made.body["data"] == {"password": "b3Blbg==", "user": "bWU="}
    assert "stringData" not in made.body
    assert made.body["type"] == "Opaque"


async def test_a_creator_owns_what_it_set(api: ClusterClient, config_maps: str) -> None:
    manifest = {"metadata": {"name": "a", "labels": {"app": "x"}}, "data": {"k": "v"}}
    made = await api.create(config_maps, manifest, fieldManager="maker")
    (entry,) = made.metadata["managedFields"]
    assert entry.pop("time")
    assert entry == {
        "manager": "maker",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:data": {".": {}, "f:k": {}}},
    }


async def test_a_manager_that_does_not_name_itself_is_named_by_its_user_agent(
    api: ClusterClient, config_maps: str
) -> None:
    made = await api.create(config_maps, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    assert [entry["manager"] for entry in made.metadata["managedFields"]] == ["contract"]
