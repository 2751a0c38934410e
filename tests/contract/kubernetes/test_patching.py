"""PATCH with JSON merge patches and JSON patches."""

from typing import Any

import pytest

from rigs.clusterclient import JSON, MERGE, ClusterClient
from rigs.customresources import Webs


async def test_a_merge_patch_adds_changes_and_removes(api: ClusterClient, config_maps: str) -> None:
    made = await api.create(config_maps, {"metadata": {"name": "a"}, "data": {"x": "1", "y": "1"}})
    patched = await api.merge(f"{config_maps}/a", {"data": {"x": "2", "y": None, "z": "3"}})
    assert patched.code == 200
    assert patched.body["data"] == {"x": "2", "z": "3"}
    assert int(patched.version) > int(made.version)


async def test_a_merge_patch_that_changes_nothing_leaves_the_version(api: ClusterClient, config_maps: str) -> None:
    made = await api.create(config_maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    patches: list[dict[str, Any]] = [{}, {"data": {"x": "1"}}, {"data": {"absent": None}}, {"metadata": {"labels": {}}}]
    for patch in patches:
        patched = await api.merge(f"{config_maps}/a", patch, fieldManager="other")
        assert patched.code == 200
        assert patched.body == made.body


async def test_a_merge_patch_with_a_version_holds_only_at_that_version(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a")
    guarded = {"metadata": {"resourceVersion": made.version}, "spec": {"image": "two"}}
    assert (await api.merge(webs.at("a"), guarded)).code == 200
    late = await api.merge(webs.at("a"), guarded)
    assert (late.code, late.reason) == (409, "Conflict")


async def test_a_merge_patch_replaces_lists_whole(api: ClusterClient, webs: Webs) -> None:
    await webs.create("a", {"image": "one", "parts": [{"name": "x", "size": 1}, {"name": "y"}]})
    patched = await api.merge(webs.at("a"), {"spec": {"parts": [{"name": "z"}]}})
    assert patched.body["spec"]["parts"] == [{"name": "z"}]


async def test_another_incarnation_is_not_patched(api: ClusterClient, config_maps: str, webs: Webs) -> None:
    await api.create(config_maps, {"metadata": {"name": "a"}})
    await webs.create("a")
    for path in (f"{config_maps}/a", webs.at("a")):
        refused = await api.merge(path, {"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}})
        assert (refused.code, refused.reason) == (422, "Invalid")
        assert refused.faults == {("metadata.uid", "FieldValueInvalid")}
        assert "field is immutable" in refused.body["message"]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"name": "b"}, "the name of the object (b) does not match the name on the URL (a)"),
        (
            {"namespace": "elsewhere"},
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ],
    ids=["name", "namespace"],
)
async def test_a_patch_renames_nothing(
    api: ClusterClient, config_maps: str, metadata: dict[str, str], message: str
) -> None:
    await api.create(config_maps, {"metadata": {"name": "a"}})
    refused = await api.merge(f"{config_maps}/a", {"metadata": metadata})
    assert (refused.code, refused.reason) == (400, "BadRequest")
    assert refused.body["message"] == message


async def test_an_absent_object_is_not_patched(api: ClusterClient, config_maps: str) -> None:
    assert (await api.merge(f"{config_maps}/a", {"data": {"x": "1"}})).code == 404
    assert (await api.change(f"{config_maps}/a", {"op": "add", "path": "/data", "value": {}})).code == 404


async def test_a_merge_patch_with_a_wrong_type_is_invalid(api: ClusterClient, config_maps: str, webs: Webs) -> None:
    await api.create(config_maps, {"metadata": {"name": "a"}})
    refused = await api.merge(f"{config_maps}/a", {"data": 5})
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.faults == {("patch", "FieldValueInvalid")}
    await webs.create("a")
    refused = await api.merge(webs.at("a"), {"spec": {"replicas": "many"}})
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.faults == {("spec.replicas", "FieldValueTypeInvalid")}


async def test_json_patches_carry_out_all_operations(api: ClusterClient, webs: Webs) -> None:
    await webs.create("a", {"image": "one", "arguments": ["a", "b", "c"], "free": {"x": {"y": 1}}})
    patched = await api.change(
        webs.at("a"),
        {"op": "test", "path": "/spec/image", "value": "one"},
        {"op": "test", "path": "/spec/absent", "value": None},
        {"op": "replace", "path": "/spec/image", "value": "two"},
        {"op": "add", "path": "/spec/arguments/1", "value": "new"},
        {"op": "add", "path": "/spec/arguments/-", "value": "last"},
        {"op": "remove", "path": "/spec/arguments/0"},
        {"op": "copy", "from": "/spec/free/x", "path": "/spec/free/z"},
        {"op": "move", "from": "/spec/free/x", "path": "/spec/free/w"},
        {"op": "add", "path": "/spec/free/a~1b~0c", "value": 1},
        {"op": "test", "path": "/spec/free/a~1b~0c", "value": 1},
    )
    assert patched.code == 200
    assert patched.body["spec"]["image"] == "two"
    assert patched.body["spec"]["arguments"] == ["new", "b", "c", "last"]
    assert patched.body["spec"]["free"] == {"z": {"y": 1}, "w": {"y": 1}, "a/b~c": 1}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/x", "value": "other"},
        {"op": "test", "path": "/data/absent", "value": "1"},
        {"op": "test", "path": "/data", "value": None},
        {"op": "remove", "path": "/data/absent"},
        {"op": "add", "path": "/absent/deep", "value": "1"},
        {"op": "replace", "path": "/absent/deep", "value": "1"},
        {"op": "bogus", "path": "/data/x", "value": "1"},
    ],
    ids=lambda operation: f"{operation['op']} {operation['path']}",
)
async def test_a_json_patch_that_cannot_be_carried_out_changes_nothing(
    api: ClusterClient, config_maps: str, operation: dict[str, Any]
) -> None:
    made = await api.create(config_maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    first = {"op": "add", "path": "/data/y", "value": "2"}
    refused = await api.change(f"{config_maps}/a", first, operation)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert (await api.get(f"{config_maps}/a")).body == made.body


async def test_malformed_patches_are_bad_requests(api: ClusterClient, config_maps: str) -> None:
    await api.create(config_maps, {"metadata": {"name": "a"}})
    path = f"{config_maps}/a"
    for body, content_type in (("{x", "merge-patch"), ("{x", "json-patch"), ({"op": "add"}, "json-patch")):
        refused = await api.ask("PATCH", path, body, content_type=f"application/{content_type}+json")
        assert (refused.code, refused.reason) == (400, "BadRequest"), (body, content_type)


async def test_a_body_nested_too_deep_is_a_bad_request(api: ClusterClient, config_maps: str, webs: Webs) -> None:
    deep = '{"a":' * 20_000 + "1" + "}" * 20_000
    await api.create(config_maps, {"metadata": {"name": "a"}})
    await webs.create("a")
    for method, path, content_type in (
        ("POST", config_maps, JSON),
        ("PUT", f"{config_maps}/a", JSON),
        ("PATCH", f"{config_maps}/a", MERGE),
        ("PATCH", webs.at("a"), MERGE),
        ("DELETE", webs.at("a"), JSON),
    ):
        refused = await api.ask(method, path, deep, content_type=content_type)
        assert (refused.code, refused.reason) == (400, "BadRequest"), (method, content_type)


async def test_unknown_kinds_of_patches_are_refused(api: ClusterClient, webs: Webs) -> None:
    await webs.create("a")
    for content_type in ("application/json", "text/plain", "application/strategic-merge-patch+json"):
        refused = await api.ask("PATCH", webs.at("a"), {"spec": {"image": "x"}}, content_type=content_type)
        assert (refused.code, refused.reason) == (415, "UnsupportedMediaType"), content_type


async def test_a_patched_field_changes_its_owner(api: ClusterClient, config_maps: str) -> None:
    await api.create(config_maps, {"metadata": {"name": "a"}, "data": {"x": "1", "y": "1"}}, fieldManager="maker")
    patched = await api.merge(f"{config_maps}/a", {"data": {"x": "2"}}, fieldManager="patcher")
    owned = {entry["manager"]: entry["fieldsV1"] for entry in patched.metadata["managedFields"]}
    assert owned == {
        "maker": {"f:data": {".": {}, "f:y": {}}},
        "patcher": {"f:data": {"f:x": {}}},
    }


async def test_the_record_of_owners_is_cleared_by_one_empty_entry(api: ClusterClient, config_maps: str) -> None:
    await api.create(config_maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    cleared = await api.merge(f"{config_maps}/a", {"metadata": {"managedFields": [{}]}})
    assert "managedFields" not in cleared.metadata
    later = await api.merge(f"{config_maps}/a", {"data": {"x": "2"}})
    assert "managedFields" not in later.metadata
    applied = await api.apply(
        f"{config_maps}/a", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "2"}}, "applier"
    )
    managers = {entry["manager"] for entry in applied.metadata["managedFields"]}
    assert managers == {"before-first-apply", "applier"}


async def test_only_the_latest_ten_updaters_are_told_apart(api: ClusterClient, config_maps: str) -> None:
    last = await api.create(config_maps, {"metadata": {"name": "a"}, "data": {"first": "0"}}, fieldManager="m0")
    for number in range(1, 13):
        patch = {"data": {f"k{number}": "1"}}
        last = await api.merge(f"{config_maps}/a", patch, fieldManager=f"m{number}")
    entries = last.metadata["managedFields"]
    assert len(entries) == 10
    assert "ancient-changes" in {entry["manager"] for entry in entries}
