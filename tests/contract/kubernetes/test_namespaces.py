"""Namespaces: those that are there from the start, new ones, and what one that ends does not take."""

from rigs.clusterclient import ClusterClient


async def test_kube_system_and_default_are_there_and_have_uids(api: ClusterClient) -> None:
    for name in ("kube-system", "default"):
        found = await api.get(f"/api/v1/namespaces/{name}")
        assert found.code == 200
        assert found.metadata["uid"]
        assert found.body["status"]["phase"] == "Active"


async def test_a_new_namespace_is_active_labelled_and_held_by_its_own_finalizer(
    api: ClusterClient, namespace: str
) -> None:
    found = (await api.get(f"/api/v1/namespaces/{namespace}")).body
    assert found["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace}
    assert found["spec"] == {"finalizers": ["kubernetes"]}
    assert found["status"] == {"phase": "Active"}
    assert "generation" not in found["metadata"]


async def test_a_namespace_that_ends_takes_nothing_new(api: ClusterClient, namespace: str, config_maps: str) -> None:
    await api.create(config_maps, {"metadata": {"name": "before"}})
    marked = await api.delete(f"/api/v1/namespaces/{namespace}")
    assert marked.code == 200
    assert marked.body["kind"] == "Namespace"
    assert marked.body["status"]["phase"] == "Terminating"
    assert marked.metadata["deletionTimestamp"]
    assert "deletionGracePeriodSeconds" not in marked.metadata
    refused = await api.create(config_maps, {"metadata": {"name": "after"}})
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.body["message"] == (
        f'configmaps "after" is forbidden: unable to create new content in namespace {namespace} '
        "because it is being terminated"
    )
    assert refused.faults == {("metadata.namespace", "NamespaceTerminating")}
    # What is there can still be changed.
    assert (await api.merge(f"{config_maps}/before", {"data": {"x": "1"}})).code == 200


async def test_a_namespace_keeps_its_finalizer(api: ClusterClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    kept = await api.merge(path, {"spec": {"finalizers": []}, "metadata": {"labels": {"a": "b"}}})
    assert kept.body["spec"] == {"finalizers": ["kubernetes"]}
    assert kept.metadata["labels"]["a"] == "b"


async def test_some_namespaces_stay(api: ClusterClient) -> None:
    for name in ("default", "kube-system", "kube-public"):
        refused = await api.delete(f"/api/v1/namespaces/{name}")
        assert (refused.code, refused.reason) == (403, "Forbidden")
        assert refused.body["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


async def test_namespaces_are_deleted_one_by_one(api: ClusterClient) -> None:
    refused = await api.delete("/api/v1/namespaces")
    assert (refused.code, refused.reason) == (405, "MethodNotAllowed")
    listed = (await api.get("/api/v1")).body["resources"]
    (entry,) = [each for each in listed if each["name"] == "namespaces"]
    assert sorted(entry["verbs"]) == ["create", "delete", "get", "list", "patch", "update", "watch"]
