"""Strategic merge patches of core kinds: single rules on both servers, and the same random patches on both at once."""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from levelog_sandbox import Sandbox
from rigs.clusterclient import Answer, ClusterClient
from rigs.controlplane import ControlPlane
from rigs.customresources import Webs
from rigs.run.examples import examples
from rigs.strategicpatches import STORIES

from .conftest import client_of, new_namespace

Json = dict[str, Any]

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o"}
FIRST, SECOND = ({**OWNER, "uid": f"{n * 8}-{n * 4}-{n * 4}-{n * 4}-{n * 12}"} for n in "12")


@pytest_asyncio.fixture
async def deployments(api: ClusterClient, namespace: str) -> str:
    """The path of a namespace's deployments, one of which is `d`: containers `a` and `b`, with ports and variables."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    ports = [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}]
    first = {"name": "a", "image": "x:1", "env": [{"name": "E", "value": "1"}, {"name": "F", "value": "1"}]}
    labels = {"app": "x"}
    spec = {"containers": [first, {"name": "b", "image": "x:1", "ports": ports, "args": ["-v"]}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    assert (await api.create(path, body)).code == 201
    return path


async def containers(api: ClusterClient, deployments: str, patch: Any) -> list[Json]:
    """Containers after a patch of the pods' spec."""
    patched = await api.patch(f"{deployments}/d", {"spec": {"template": {"spec": patch}}})
    assert patched.code == 200, patched.body
    found: list[Json] = patched.body["spec"]["template"]["spec"]["containers"]
    return found


async def test_an_item_with_the_key_is_merged_and_others_stay(api: ClusterClient, deployments: str) -> None:
    first, second = await containers(api, deployments, {"containers": [{"name": "b", "image": "y:2"}]})
    assert (first["name"], first["image"]) == ("a", "x:1")
    assert (second["name"], second["image"], second["args"]) == ("b", "y:2", ["-v"])


async def test_new_items_come_first_unless_an_order_is_sent(api: ClusterClient, deployments: str) -> None:
    new = {"name": "c", "image": "x:1"}
    assert [each["name"] for each in await containers(api, deployments, {"containers": [new]})] == ["c", "a", "b"]
    order = [{"name": name} for name in ("b", "d", "a", "c")]
    moved = {"containers": [{**new, "name": "d"}], "$setElementOrder/containers": order}
    assert [each["name"] for each in await containers(api, deployments, moved)] == ["b", "d", "a", "c"]


async def test_lists_in_items_follow_their_own_keys(api: ClusterClient, deployments: str) -> None:
    patch = {"name": "a", "env": [{"name": "E", "$patch": "delete"}, {"name": "G", "value": "3"}]}
    first, _ = await containers(api, deployments, {"containers": [patch]})
    assert first["env"] == [{"name": "G", "value": "3"}, {"name": "F", "value": "1"}]


async def test_ports_are_merged_by_the_port_alone(api: ClusterClient, deployments: str) -> None:
    """Ownership tells them apart by the protocol too."""
    patch = {"name": "b", "ports": [{"containerPort": 80, "name": "http"}]}
    _, second = await containers(api, deployments, {"containers": [patch]})
    assert second["ports"] == [
        {"containerPort": 80, "protocol": "TCP", "name": "http"},
        {"containerPort": 80, "protocol": "UDP"},
    ]


async def test_other_lists_are_replaced_whole(api: ClusterClient, deployments: str) -> None:
    _, second = await containers(api, deployments, {"containers": [{"name": "b", "args": ["-x", "-y"]}]})
    assert second["args"] == ["-x", "-y"]


async def test_a_list_is_replaced_when_the_patch_says_so(api: ClusterClient, deployments: str) -> None:
    said = [{"$patch": "replace"}, {"name": "z", "image": "x:1"}]
    assert [each["name"] for each in await containers(api, deployments, {"containers": said})] == ["z"]


async def test_a_map_is_replaced_or_loses_what_is_not_retained(api: ClusterClient, deployments: str) -> None:
    retained = {"type": "Recreate", "$retainKeys": ["type"]}
    patched = await api.patch(f"{deployments}/d", {"spec": {"strategy": retained}})
    assert patched.body["spec"]["strategy"] == {"type": "Recreate"}
    replaced = {"$patch": "replace", "rollingUpdate": {"maxSurge": 3}}
    patched = await api.patch(f"{deployments}/d", {"spec": {"strategy": replaced}})
    rolling = {"maxSurge": 3, "maxUnavailable": "25%"}
    assert patched.body["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}


async def test_names_are_added_to_lists_and_deleted_from_them(api: ClusterClient, config_maps: str) -> None:
    finalizers = ["example.com/a", "example.com/b"]
    await api.create(config_maps, {"metadata": {"name": "m", "finalizers": finalizers}})
    added = await api.patch(f"{config_maps}/m", {"metadata": {"finalizers": ["example.com/c", "example.com/a"]}})
    assert sorted(added.metadata["finalizers"]) == ["example.com/a", "example.com/b", "example.com/c"]
    gone = {"$deleteFromPrimitiveList/finalizers": ["example.com/a", "example.com/absent"]}
    assert (await api.patch(f"{config_maps}/m", {"metadata": gone})).metadata["finalizers"] == [
        "example.com/c",
        "example.com/b",
    ]


async def test_owners_are_added_by_uid(api: ClusterClient, config_maps: str) -> None:
    await api.create(config_maps, {"metadata": {"name": "m", "ownerReferences": [FIRST]}})
    added = await api.patch(f"{config_maps}/m", {"metadata": {"ownerReferences": [SECOND]}})
    assert added.metadata["ownerReferences"] == [SECOND, FIRST]


async def test_conditions_in_a_status_are_merged_by_type(api: ClusterClient, deployments: str) -> None:
    for kind, status in (("Available", "True"), ("Progressing", "True"), ("Available", "False")):
        condition = {"type": kind, "status": status, "lastTransitionTime": None, "lastUpdateTime": None}
        patched = await api.patch(f"{deployments}/d/status", {"status": {"conditions": [condition]}})
        assert patched.code == 200, patched.body
    found = {each["type"]: each["status"] for each in patched.body["status"]["conditions"]}
    assert found == {"Available": "False", "Progressing": "True"}


async def test_a_patch_that_changes_nothing_leaves_the_version(api: ClusterClient, deployments: str) -> None:
    made = await api.get(f"{deployments}/d")
    same = {"containers": [{"name": "b", "image": "x:1"}, {"name": "absent", "$patch": "delete"}]}
    patched = await api.patch(f"{deployments}/d", {"spec": {"template": {"spec": same}}}, fieldManager="other")
    assert patched.body == made.body


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ([], 400),
        ({"metadata": {"$deleteFromPrimitiveList": ["a"]}}, 400),
        ({"data": {"$retainKeys": ["y"], "z": "1"}}, 400),
        ({"data": {"$retainKeys": "y"}}, 400),
        ({"$patch": "delete"}, 400),
        ({"data": {"$patch": "other"}}, 500),
        ({"metadata": {"ownerReferences": [OWNER]}}, 500),
        ({"metadata": {"ownerReferences": ["a"]}}, 500),
        ({"metadata": {"ownerReferences": [{"$patch": "merge", **SECOND}]}}, 500),
        ({"metadata": {"finalizers": [["example.com/a"]]}}, 500),
        ({"metadata": {"$setElementOrder/unknown": ["a"]}}, 500),
        (
            {"metadata": {"finalizers": ["a.io/a", "a.io/b"], "$setElementOrder/finalizers": ["a.io/b", "a.io/a"]}},
            500,
        ),
        ({"data": 5}, 422),
        ({"metadata": {"labels": {"a": 1}}}, 422),
    ],
    ids=str,
)
async def test_a_patch_of_a_wrong_form_changes_nothing(
    api: ClusterClient, config_maps: str, patch: Any, code: int
) -> None:
    about = {"name": "m", "finalizers": ["example.com/a"], "ownerReferences": [FIRST]}
    made = await api.create(config_maps, {"metadata": about, "data": {"x": "1"}})
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


class Both:
    """A sandbox and a kube-apiserver, which are asked the same."""

    def __init__(self, sandbox: ClusterClient, server: ClusterClient, namespace: str) -> None:
        self._clients = (sandbox, server)
        self._namespace = namespace
        self._numbers = itertools.count()

    async def walk(self, root: str, body: Json, patches: list[Json]) -> None:
        """Patch a new object again and again: each time both answer the same."""
        group, plural = root.split()
        path = f"/{group}/namespaces/{self._namespace}/{plural}"
        name = f"o-{next(self._numbers)}"
        made = {**body, "metadata": {**body["metadata"], "name": name}}
        ours, theirs = [await client.create(path, made) for client in self._clients]
        assert shown(ours) == shown(theirs)
        for patch in patches:
            query = {"fieldManager": f"m{patches.index(patch)}"}
            ours, theirs = [await client.patch(f"{path}/{name}", patch, **query) for client in self._clients]
            assert shown(ours) == shown(theirs), patch


def shown(answer: Answer) -> Any:
    """An answer, less what differs from server to server, and from one write to the next."""
    if answer.code not in {200, 201}:
        return answer.code, answer.reason, answer.faults
    about = dict(answer.metadata)
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        about.pop(key, None)
    claims = [{k: v for k, v in entry.items() if k != "time"} for entry in answer.metadata.get("managedFields", ())]
    spec = {k: v for k, v in answer.body.get("spec", {}).items() if k not in {"clusterIP", "clusterIPs"}}
    owned = sorted(claims, key=lambda entry: entry["manager"])
    warnings = sorted(each for each in answer.warnings if "unknown field" in each)
    return answer.code, {**answer.body, "metadata": about, "spec": spec}, owned, warnings


@pytest_asyncio.fixture
async def both(control_plane: ControlPlane) -> AsyncIterator[Both]:
    async with (
        Sandbox(collects_garbage=False) as sandbox,
        client_of(sandbox) as ours,
        client_of(control_plane) as theirs,
    ):
        namespace = await new_namespace(theirs)
        sandbox.user.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        yield Both(ours, theirs, namespace)


@pytest.mark.parametrize("root", STORIES)
@settings(max_examples=examples(60))
@given(data=st.data())
async def test_any_patch_has_the_same_result_on_both(both: Both, root: str, data: st.DataObject) -> None:
    body, patches = data.draw(STORIES[root])
    await both.walk(root, body, patches)
