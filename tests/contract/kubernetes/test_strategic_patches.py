"""Strategic merge patches of core kinds: what kubectl and clients send, and what is refused."""

from typing import Any

import pytest

from rigs.clusterclient import ClusterClient
from rigs.customresources import Webs

Json = dict[str, Any]

LABELS = {"app": "x"}
FIRST = {"name": "a", "image": "x:1", "args": ["-v"], "env": [{"name": "E", "value": "1"}]}
SECOND = {"name": "b", "image": "x:1"}
DEPLOYMENT: Json = {
    "metadata": {"name": "d"},
    "spec": {
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {"containers": [FIRST, SECOND], "nodeSelector": {"x": "1"}},
        },
    },
}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o"}


@pytest.mark.parametrize(
    ("patch", "images"),
    [
        ({"containers": [{"name": "b", "image": "y:2"}]}, {"a": "x:1", "b": "y:2"}),
        ({"containers": [{"name": "c", "image": "y:2"}]}, {"c": "y:2", "a": "x:1", "b": "x:1"}),
        ({"containers": [{"name": "b", "$patch": "delete"}]}, {"a": "x:1"}),
        ({"containers": [{"$patch": "replace"}, {"name": "c", "image": "z:1"}]}, {"c": "z:1"}),
        (
            {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
                "containers": [{"name": "c", "image": "z:1"}],
            },
            {"b": "x:1", "c": "z:1", "a": "x:1"},
        ),
        (
            {
                "$setElementOrder/containers": [{"name": "a"}, {"name": "c"}],
                "containers": [{"name": "c", "image": "z:1"}, {"name": "b", "$patch": "delete"}],
            },
            {"a": "x:1", "c": "z:1"},
        ),
        ({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}, {"b": "x:1", "a": "x:1"}),
    ],
    ids=str,
)
async def test_containers_are_merged_by_their_names(
    api: ClusterClient, namespace: str, patch: Json, images: dict[str, str]
) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    assert (await api.create(path, DEPLOYMENT)).code == 201
    patched = await api.patch(f"{path}/d", {"spec": {"template": {"spec": patch}}})
    assert patched.code == 200, patched.body
    containers = patched.body["spec"]["template"]["spec"]["containers"]
    assert [(each["name"], each["image"]) for each in containers] == list(images.items())


@pytest.mark.parametrize(
    ("patch", "field", "value"),
    [
        ({"strategy": {"type": "Recreate", "$retainKeys": ["type"]}}, "strategy", {"type": "Recreate"}),
        ({"template": {"spec": {"nodeSelector": {"y": "2"}}}}, "nodeSelector", {"x": "1", "y": "2"}),
        ({"template": {"spec": {"nodeSelector": {"x": None, "y": "2"}}}}, "nodeSelector", {"y": "2"}),
        ({"template": {"spec": {"nodeSelector": {"$patch": "replace", "y": "2"}}}}, "nodeSelector", {"y": "2"}),
        ({"template": {"spec": {"nodeSelector": {"$patch": "delete"}}}}, "nodeSelector", None),
        ({"template": {"spec": {"containers": [{"name": "a", "args": ["-x"]}]}}}, "args", ["-x"]),
        (
            {"template": {"spec": {"containers": [{"name": "a", "env": [{"name": "F", "value": "2"}]}]}}},
            "env",
            [{"name": "F", "value": "2"}, {"name": "E", "value": "1"}],
        ),
        (
            {"template": {"spec": {"containers": [{"name": "a", "env": [{"name": "E", "$patch": "delete"}]}]}}},
            "env",
            None,
        ),
    ],
    ids=str,
)
async def test_other_fields_are_merged_as_their_schema_says(
    api: ClusterClient, namespace: str, patch: Json, field: str, value: Any
) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    assert (await api.create(path, DEPLOYMENT)).code == 201
    patched = await api.patch(f"{path}/d", {"spec": patch})
    assert patched.code == 200, patched.body
    template = patched.body["spec"]["template"]["spec"]
    (first,) = [each for each in template["containers"] if each["name"] == "a"]
    assert {**patched.body["spec"], **template, **first}.get(field) == value


async def test_names_are_added_to_and_taken_from_a_list(api: ClusterClient, config_maps: str) -> None:
    await api.create(config_maps, {"metadata": {"name": "m", "finalizers": ["a.io/a", "a.io/b"]}})
    patched = await api.patch(f"{config_maps}/m", {"metadata": {"finalizers": ["a.io/c"]}})
    assert patched.metadata["finalizers"] == ["a.io/c", "a.io/a", "a.io/b"]
    removed = {"$deleteFromPrimitiveList/finalizers": ["a.io/a"], "$setElementOrder/finalizers": ["a.io/b", "a.io/c"]}
    patched = await api.patch(f"{config_maps}/m", {"metadata": removed})
    assert patched.metadata["finalizers"] == ["a.io/b", "a.io/c"]


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ([], 400),
        ({"data": {"$patch": "other"}}, 500),
        ({"metadata": {"ownerReferences": [OWNER]}}, 500),
        ({"metadata": {"ownerReferences": ["a"]}}, 500),
        ({"metadata": {"finalizers": ["a.io/a"], "$setElementOrder/finalizers": 5}}, 500),
        ({"data": 5}, 422),
        ({"metadata": {"labels": {"a": 1}}}, 422),
    ],
    ids=str,
)
async def test_a_patch_of_a_wrong_form_changes_nothing(
    api: ClusterClient, config_maps: str, patch: Any, code: int
) -> None:
    owner = {**OWNER, "uid": "11111111-1111-1111-1111-111111111111"}
    made = await api.create(config_maps, {"metadata": {"name": "m", "ownerReferences": [owner]}, "data": {"x": "1"}})
    refused = await api.patch(f"{config_maps}/m", patch)
    assert refused.code == code, refused.body
    assert refused.reason == {400: "BadRequest", 422: "Invalid", 500: ""}[code]
    assert (await api.get(f"{config_maps}/m")).body == made.body


async def test_unknown_fields_of_a_patch_are_named_or_refused(api: ClusterClient, config_maps: str) -> None:
    await api.create(config_maps, {"metadata": {"name": "m"}})
    patched = await api.patch(f"{config_maps}/m", {"wrong": 1})
    assert patched.warnings == ('299 - "unknown field \\"wrong\\""',)
    for refused in (
        await api.patch(f"{config_maps}/m", {"wrong": 1}, fieldValidation="Strict"),
        await api.merge(f"{config_maps}/m", {"wrong": 1}, fieldValidation="Strict"),
    ):
        assert (refused.code, refused.faults) == (422, {("patch", "FieldValueInvalid")})
        assert 'strict decoding error: unknown field "wrong"' in refused.body["message"]


async def test_custom_resources_have_none(api: ClusterClient, webs: Webs) -> None:
    await webs.create("a")
    refused = await api.patch(webs.at("a"), {"spec": {"image": "x"}})
    assert (refused.code, refused.reason) == (415, "UnsupportedMediaType")
    offered = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    assert refused.body["message"] == (
        f"the body of the request was in an unknown format - accepted media types include: {offered}"
    )
