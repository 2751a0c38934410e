"""What clients ask before their first request, and the forms in which they may have objects."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from levelog_kube.client import connect
from levelog_kube.discovery import watchable_kinds
from levelog_sandbox import Sandbox
from rigs.clusterclient import TABLE, ClusterClient
from rigs.controlplane import ControlPlane
from rigs.customresources import Webs


@pytest.mark.parametrize("path", ["/readyz", "/livez", "/healthz"])
async def test_a_server_that_is_up_says_ok(api: ClusterClient, path: str) -> None:
    answer = await api.get(path)
    assert (answer.code, answer.body) == (200, "ok")


async def test_the_version_is_that_of_a_recent_kubernetes(api: ClusterClient) -> None:
    version = (await api.get("/version")).body
    assert version["major"] == "1"
    assert int(version["minor"]) >= 35
    assert version["gitVersion"].startswith("v1.")


async def test_groups_and_versions_are_listed(api: ClusterClient, webs: Webs) -> None:
    assert (await api.get("/api")).body["versions"] == ["v1"]
    groups = (await api.get("/apis")).body
    assert groups["kind"] == "APIGroupList"
    (ours,) = [group for group in groups["groups"] if group["name"] == "contract.example.com"]
    assert ours == {
        "name": "contract.example.com",
        "versions": [{"groupVersion": "contract.example.com/v1", "version": "v1"}],
        "preferredVersion": {"groupVersion": "contract.example.com/v1", "version": "v1"},
    }
    assert (await api.get("/apis/contract.example.com")).body == {"kind": "APIGroup", "apiVersion": "v1", **ours}


def described(resources: list[Any]) -> dict[str, Any]:
    """Resources by name, less what names a storage format; verbs have no order."""
    return {
        entry["name"]: {
            key: sorted(value) if key == "verbs" else value
            for key, value in entry.items()
            if key not in {"name", "storageVersionHash"}
        }
        for entry in resources
    }


async def test_the_resources_of_a_version_are_listed(api: ClusterClient, webs: Webs) -> None:
    listed = (await api.get("/apis/contract.example.com/v1")).body
    assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", "contract.example.com/v1")
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    assert described(listed["resources"]) == {
        "webs": {"singularName": "web", "namespaced": True, "kind": "Web", "verbs": verbs},
        "webs/status": {"singularName": "", "namespaced": True, "kind": "Web", "verbs": ["get", "patch", "update"]},
    }
    core = described((await api.get("/api/v1")).body["resources"])
    assert core["pods"]["shortNames"] == ["po"]
    assert core["pods"]["categories"] == ["all"]
    assert core["namespaces"]["namespaced"] is False
    assert core["pods/status"]["verbs"] == ["get", "patch", "update"]


@pytest.mark.parametrize(
    ("method", "path", "code", "is_status"),
    [
        ("GET", "/nope", 404, False),
        ("GET", "/apis/nope.example.com", 404, False),
        ("GET", "/apis/nope.example.com/v1", 404, False),
        ("GET", "/apis/nope.example.com/v1/things", 404, False),
        ("GET", "/apis/contract.example.com/v9/webs", 404, False),
        ("GET", "/apis/contract.example.com/v1/nope", 404, False),
        ("GET", "/api/v1/nopes", 404, True),
        ("GET", "/apis/apps/v1/nopes", 404, True),
        ("GET", "/api/v1/pods/name", 404, True),
        ("GET", "/api/v1/namespaces/default/nodes", 404, True),
        ("GET", "/api/v1/namespaces/default/configmaps/x/status", 404, True),
        ("POST", "/api/v1/pods", 405, True),
        ("DELETE", "/api/v1/configmaps", 405, True),
        ("PUT", "/api/v1/namespaces/default/configmaps", 405, True),
        ("POST", "/api/v1/namespaces/default/configmaps/x", 405, True),
        ("POST", "/apis/contract.example.com/v1/webs", 404, False),
        ("DELETE", "/apis/contract.example.com/v1/webs", 404, False),
        ("DELETE", "/apis/contract.example.com/v1/namespaces/default/webs/x/status", 405, True),
    ],
)
async def test_paths_and_methods_that_are_not_served_are_refused(
    api: ClusterClient, webs: Webs, method: str, path: str, code: int, *, is_status: bool
) -> None:
    answer = await api.ask(method, path, {} if method in {"PUT", "POST"} else None)
    assert answer.code == code
    assert isinstance(answer.body, dict) is is_status
    if not is_status:
        assert answer.body == "404 page not found\n"


async def test_a_table_has_a_row_an_object_with_its_metadata(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a")
    await webs.create("b")
    for path, names in ((webs.path, ["a", "b"]), (webs.at("a"), ["a"])):
        table = (await api.get(path, accept=f"{TABLE},application/json")).body
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Age"]
        assert [row["cells"][0] for row in table["rows"]] == names
        assert table["rows"][0]["object"] == {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": made.metadata,
        }


async def test_answers_come_in_no_form_that_the_client_does_not_accept(api: ClusterClient, config_maps: str) -> None:
    await api.create(config_maps, {"metadata": {"name": "a"}})
    refused = await api.get(f"{config_maps}/a", accept="text/plain")
    assert (refused.code, refused.reason) == (406, "NotAcceptable")
    assert (await api.get(f"{config_maps}/a", accept="*/*")).content_type == "application/json"


async def test_bodies_of_unknown_types_are_refused(api: ClusterClient, config_maps: str) -> None:
    refused = await api.ask("POST", config_maps, {"metadata": {"name": "a"}}, content_type="text/plain")
    assert (refused.code, refused.reason) == (415, "UnsupportedMediaType")


async def test_kinds_that_can_be_watched_are_found_with_their_names(
    control_plane_or_none: ControlPlane | None, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        if control_plane_or_none is not None:
            kubeconfig = control_plane_or_none.kubeconfig
        else:
            kubeconfig = (await stack.enter_async_context(Sandbox())).kubeconfig(tmp_path / "kubeconfig")
        client = await stack.enter_async_context(await connect(kubeconfig))
        found = {kind.name: kind for kind in await watchable_kinds(client)}
    assert {"events", "events.events.k8s.io", "nodes", "secrets", "leases.coordination.k8s.io"} <= found.keys()
    assert not {"bindings", "pods/log", "subjectaccessreviews.authorization.k8s.io"} & found.keys()
    pods, nodes = found["pods"], found["nodes"]
    assert (pods.api_version, pods.kind, pods.singular, pods.namespaced) == ("v1", "Pod", "pod", True)
    assert (set(pods.shortcuts), set(pods.categories), nodes.namespaced) == ({"po"}, {"all"}, False)
    assert "status" in pods.subresources
    assert {"get", "list", "watch", "patch"} <= pods.verbs
    assert found["horizontalpodautoscalers.autoscaling"].version == "v2"  # preferred of those that are served
