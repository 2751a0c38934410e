"""The status subresource, and the generation that tells spec from status."""

import secrets

import pytest

from rigs.clusterclient import ClusterClient
from rigs.customresources import Webs, define, definition


async def test_a_status_is_written_only_through_its_subresource(api: ClusterClient, webs: Webs) -> None:
    made = await api.create(webs.path, webs.manifest("a", {"image": "one"}, status={"phase": "sent"}))
    assert "status" not in made.body
    ignored = await api.merge(webs.at("a"), {"status": {"phase": "sent"}})
    assert ignored.body == made.body
    written = await api.merge(webs.at("a", "status"), {"status": {"phase": "done"}})
    assert written.code == 200
    assert written.body["status"] == {"phase": "done"}
    assert (await api.get(webs.at("a"))).body == written.body
    assert (await api.get(webs.at("a", "status"))).body == written.body


async def test_nothing_but_the_status_is_written_through_its_subresource(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a", labels={"k": "v"})
    changed = {
        **made.body,
        "metadata": {**made.metadata, "labels": {"k": "w"}, "finalizers": ["example.com/f"]},
        "spec": {"image": "two"},
        "status": {"phase": "done"},
    }
    written = await api.replace(webs.at("a", "status"), changed)
    assert written.code == 200
    assert written.body["spec"] == made.body["spec"]
    assert written.metadata["labels"] == {"k": "v"}
    assert "finalizers" not in written.metadata
    assert written.body["status"] == {"phase": "done"}


async def test_the_generation_counts_changes_of_the_spec_only(api: ClusterClient, webs: Webs) -> None:
    assert (await webs.create("a", generation=7)).metadata["generation"] == 1
    assert (await api.merge(webs.at("a"), {"spec": {"image": "two"}})).metadata["generation"] == 2
    assert (await api.merge(webs.at("a"), {"spec": {"image": "two"}})).metadata["generation"] == 2
    assert (await api.merge(webs.at("a"), {"metadata": {"labels": {"a": "b"}}})).metadata["generation"] == 2
    assert (await api.merge(webs.at("a", "status"), {"status": {"x": 1}})).metadata["generation"] == 2
    assert (await api.merge(webs.at("a"), {"metadata": {"generation": 9}})).metadata["generation"] == 2


async def test_a_status_that_does_not_change_leaves_the_version(api: ClusterClient, webs: Webs) -> None:
    await webs.create("a")
    written = await api.merge(webs.at("a", "status"), {"status": {"phase": "done"}})
    again = await api.merge(webs.at("a", "status"), {"status": {"phase": "done"}}, fieldManager="other")
    assert again.body == written.body


async def test_a_status_is_guarded_by_versions_too(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a")
    await api.merge(webs.at("a"), {"spec": {"image": "two"}})
    refused = await api.replace(webs.at("a", "status"), {**made.body, "status": {"phase": "late"}})
    assert (refused.code, refused.reason) == (409, "Conflict")


async def test_of_a_patch_of_a_status_the_uid_is_not_looked_at(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a")
    other = {"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}, "status": {"phase": "done"}}
    written = await api.merge(webs.at("a", "status"), other)
    assert (written.code, written.body["status"]) == (200, {"phase": "done"})
    assert written.metadata["uid"] == made.metadata["uid"]


async def test_a_status_can_be_removed_and_added_by_patches(api: ClusterClient, webs: Webs) -> None:
    await webs.create("a")
    added = await api.change(webs.at("a", "status"), {"op": "add", "path": "/status", "value": {"x": 1}})
    assert added.body["status"] == {"x": 1}
    removed = await api.merge(webs.at("a", "status"), {"status": None})
    assert "status" not in removed.body


async def test_a_status_is_applied_and_owned_apart_from_the_spec(api: ClusterClient, webs: Webs) -> None:
    await webs.apply("a", {"image": "one"}, "m")
    status = webs.manifest("a", {"image": "other"}, status={"phase": "x", "list": [1]}, labels={"no": "no"})
    written = await api.apply(webs.at("a", "status"), status, "m")
    assert written.code == 200
    assert written.body["status"] == {"phase": "x", "list": [1]}
    assert written.body["spec"]["image"] == "one"
    assert "labels" not in written.metadata
    entries = {entry.get("subresource", ""): entry["fieldsV1"] for entry in written.metadata["managedFields"]}
    assert entries == {"": {"f:spec": {"f:image": {}}}, "status": {"f:status": {"f:phase": {}, "f:list": {}}}}
    less = await api.apply(webs.at("a", "status"), webs.manifest("a", status={"phase": "x"}), "m")
    assert less.body["status"] == {"phase": "x"}


async def test_the_status_of_an_absent_object_is_not_found(api: ClusterClient, webs: Webs) -> None:
    status = webs.manifest("a", status={"phase": "x"})
    assert (await api.merge(webs.at("a", "status"), {"status": {}})).code == 404
    assert (await api.apply(webs.at("a", "status"), status)).code == 404
    assert (await api.get(webs.at("a"))).code == 404


async def test_without_the_subresource_the_status_is_a_field_like_others(api: ClusterClient) -> None:
    group = f"g{secrets.token_hex(4)}.example.com"
    await define(api, definition(group, "rocks", "Rock", scope="Cluster", subresources={}))
    rocks = f"/apis/{group}/v1/rocks"
    rock = {"apiVersion": f"{group}/v1", "kind": "Rock", "metadata": {"name": "a"}, "spec": {"image": "one"}}
    made = await api.create(rocks, {**rock, "status": {"x": 1}})
    assert made.body["status"] == {"x": 1}
    changed = await api.merge(f"{rocks}/a", {"status": {"x": 2}})
    assert changed.body["status"] == {"x": 2}
    assert changed.metadata["generation"] == 2
    assert (await api.merge(f"{rocks}/a/status", {"status": {"x": 3}})).code == 404
    assert (await api.get(f"{rocks}/a/status")).code == 404


async def test_the_status_of_a_core_kind_lets_labels_through_but_no_spec(api: ClusterClient, pods: str) -> None:
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    await api.create(pods, pod)
    patch = {
        "metadata": {"labels": {"via": "status"}},
        "spec": {"activeDeadlineSeconds": 5},
        "status": {"phase": "Running"},
    }
    written = await api.merge(f"{pods}/a/status", patch)
    assert written.metadata["labels"] == {"via": "status"}
    assert "activeDeadlineSeconds" not in written.body["spec"]
    assert written.body["status"]["phase"] == "Running"
    assert written.metadata["generation"] == 1


@pytest.mark.parametrize(
    ("plural", "times"),
    [
        ("deployments", {"lastUpdateTime", "lastTransitionTime"}),
        ("replicasets", {"lastTransitionTime"}),
        ("statefulsets", {"lastTransitionTime"}),
        ("daemonsets", {"lastTransitionTime"}),
        ("persistentvolumeclaims", {"lastProbeTime", "lastTransitionTime"}),
        ("namespaces", {"lastTransitionTime"}),
        ("nodes", {"lastHeartbeatTime", "lastTransitionTime"}),
    ],
)
async def test_conditions_of_core_kinds_have_times_that_may_be_null(
    api: ClusterClient, namespace: str, plural: str, times: set[str]
) -> None:
    root = "/apis/apps/v1" if plural.endswith("sets") or plural == "deployments" else "/api/v1"
    scope = "" if plural in {"namespaces", "nodes"} else f"/namespaces/{namespace}"
    name = f"{namespace}-x"  # of a namespace, or of the cluster
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    workload = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    spec = workload if "apps" in root else claim if plural == "persistentvolumeclaims" else {}
    made = await api.create(f"{root}{scope}/{plural}", {"metadata": {"name": name}, "spec": spec})
    assert made.code == 201, made.body
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    patched = await api.patch(f"{root}{scope}/{plural}/{name}/status", status, fieldManager="reporter")
    assert patched.code == 200, patched.body
    assert patched.body["status"]["conditions"] == [{"type": "Ready", "status": "True", **dict.fromkeys(times)}]
    if plural == "nodes":
        return  # whose owners kube-apiserver does not show
    (entry,) = [entry for entry in patched.metadata["managedFields"] if entry["manager"] == "reporter"]
    owned = entry["fieldsV1"]["f:status"]["f:conditions"]['k:{"type":"Ready"}']
    assert set(owned) == {".", "f:type", "f:status", *(f"f:{time}" for time in times)}
