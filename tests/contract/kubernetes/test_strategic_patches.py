"""Strategic merge patches of core kinds: what both servers refuse, and the same random patches on both at once."""

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
