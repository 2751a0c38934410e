import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from kubernetes_asyncio import client, config

from rigs.api import APPLY, MERGE_PATCH, Api
from rigs.binaries import Binaries
from rigs.controlplane import ControlPlane
from rigs.ports import is_listening
from rigs.processes import ProcessEnded
from rigs.waiting import until

pytestmark = pytest.mark.long  # of a rig, which seldom changes

PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}

STARTS_AND_NEVER_STOPS = """
import asyncio, sys
from pathlib import Path
from rigs.binaries import Binaries
from rigs.controlplane import ControlPlane

async def main() -> None:
    etcd, kube_apiserver = map(Path, sys.argv[1:])
    plane = ControlPlane(Binaries(etcd=etcd, kube_apiserver=kube_apiserver, kube_controller_manager=None))
    await plane.start()
    print(plane.folder, plane.url, plane.etcd_url, flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the test ends, however it does

asyncio.run(main())
"""


async def config_map(api: Api, collection: str, name: str) -> int:
    """Create one and return its resourceVersion."""
    return int((await api.create(collection, {"metadata": {"name": name}}))["metadata"]["resourceVersion"])


async def test_the_server_tells_the_version_that_is_pinned(control_plane: ControlPlane) -> None:
    _, version = await control_plane.admin.request("GET", "/version")
    assert version["major"] == "1"
    assert int(version["minor"]) >= 35
    assert version["gitVersion"].startswith(f"v1.{version['minor']}.")


async def test_a_custom_resource_is_served_and_its_generation_counts_changes_of_spec(
    control_plane: ControlPlane,
) -> None:
    group = f"{secrets.token_hex(4)}.example.com"
    await control_plane.admin.create_crd(group=group, plural="webs", kind="Web")
    path = f"/apis/{group}/v1/namespaces/default/webs"
    manifest = {"apiVersion": f"{group}/v1", "kind": "Web", "metadata": {"name": "shop"}, "spec": {"replicas": 1}}
    assert (await control_plane.admin.create(path, manifest))["metadata"]["generation"] == 1

    async def patch(path: str, change: object) -> int:
        _, web = await control_plane.admin.request("PATCH", path, change, content_type=MERGE_PATCH)
        return int(web["metadata"]["generation"])

    assert await patch(f"{path}/shop", {"spec": {"replicas": 2}}) == 2
    assert await patch(f"{path}/shop/status", {"status": {"ready": 2}}) == 2


async def test_the_same_apply_twice_leaves_the_resource_version(control_plane: ControlPlane) -> None:
    namespace = await control_plane.admin.create_namespace()
    path = f"/api/v1/namespaces/{namespace}/configmaps/one?fieldManager=test"
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "1"}}
    answers = [await control_plane.admin.request("PATCH", path, manifest, content_type=APPLY) for _ in range(2)]
    assert [status for status, _ in answers] == [201, 200]
    assert answers[0][1]["metadata"]["resourceVersion"] == answers[1][1]["metadata"]["resourceVersion"]


async def test_the_audit_log_counts_each_write_once(control_plane: ControlPlane) -> None:
    namespace = await control_plane.admin.create_namespace()
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    await asyncio.gather(*(config_map(control_plane.admin, collection, f"map-{number}") for number in range(20)))
    refused, _ = await control_plane.admin.request("POST", collection, {"metadata": {"name": "map-0"}})
    await control_plane.admin.request("GET", f"{collection}/map-0")
    await control_plane.admin.request("DELETE", f"{collection}/map-0")

    assert refused == 409
    writes = await control_plane.audit.writes(namespace=namespace, resource="configmaps")
    assert sorted(write.name for write in writes if write.verb == "create") == sorted(f"map-{n}" for n in range(20))
    assert [(write.verb, write.name, write.code, write.user) for write in writes[20:]] == [
        ("delete", "map-0", 200, "admin")
    ]
    every = await control_plane.audit.requests(namespace=namespace, resource="configmaps")
    assert [(request.verb, request.code) for request in every[20:]] == [("create", 409), ("get", 200), ("delete", 200)]


async def test_an_account_may_do_what_its_rules_say_and_nothing_else(control_plane: ControlPlane) -> None:
    name, token = await control_plane.admin.create_account([PODS])
    account = Api(control_plane.url, ca_file=control_plane.ca_file, token=token)
    assert (await account.request("GET", "/api/v1/pods"))[0] == 200
    status, refusal = await account.request("GET", "/api/v1/secrets")
    assert status == 403
    assert f'"system:serviceaccount:default:{name}" cannot list resource "secrets"' in refusal["message"]


async def test_the_kubeconfigs_load_in_the_client_library(control_plane: ControlPlane) -> None:
    limited = await control_plane.kubeconfig_for([PODS])
    assert limited.stat().st_mode & 0o077 == 0
    async with await config.new_client_from_config(str(control_plane.kubeconfig)) as admin:
        namespaces = await client.CoreV1Api(admin).list_namespace()
    assert {"default", "kube-system"} <= {namespace.metadata.name for namespace in namespaces.items}
    async with await config.new_client_from_config(str(limited)) as account:
        await client.CoreV1Api(account).list_pod_for_all_namespaces()
        with pytest.raises(client.ApiException) as refusal:
            await client.CoreV1Api(account).list_namespace()
    assert refusal.value.status == 403


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl not found on PATH")
async def test_kubectl_accepts_the_kubeconfig(control_plane: ControlPlane) -> None:
    argv = ["kubectl", f"--kubeconfig={control_plane.kubeconfig}", "get", "namespace", "default", "-o", "name"]
    kubectl = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=False)
    assert kubectl.stdout.strip() == "namespace/default", kubectl.stderr


async def test_an_old_watch_is_answered_410_once_history_expired(private_control_plane: ControlPlane) -> None:
    api, path = private_control_plane.admin, "/api/v1/namespaces/default/configmaps"
    old = await config_map(api, path, "one")
    newest = await config_map(api, path, "two")
    _, events = await api.lines(f"{path}?watch=1&timeoutSeconds=1&resourceVersion={old}")
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("ADDED", "two")]

    now = await private_control_plane.expire_history()

    assert now > newest
    for version in (old, newest):
        _, events = await api.lines(f"{path}?watch=1&timeoutSeconds=1&resourceVersion={version}")
        assert [(event["type"], event["object"]["code"]) for event in events] == [("ERROR", 410)]


async def test_without_a_watch_cache_compaction_alone_expires_watches_and_lists(
    control_plane_binaries: Binaries,
) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    async with ControlPlane(control_plane_binaries, watch_cache=False) as plane:
        versions = [await config_map(plane.admin, path, name) for name in ("one", "two", "three")]
        _, page = await plane.admin.request("GET", f"{path}?limit=1")

        await plane.compact()

        for version in versions:
            _, events = await plane.admin.lines(f"{path}?watch=1&timeoutSeconds=1&resourceVersion={version}")
            assert [(event["type"], event["object"]["code"]) for event in events] == [("ERROR", 410)]
        status, _ = await plane.admin.request("GET", f"{path}?limit=1&continue={page['metadata']['continue']}")
        assert status == 410


async def test_a_killed_server_comes_back_with_its_data_address_and_credentials(
    private_control_plane: ControlPlane,
) -> None:
    plane, path = private_control_plane, "/api/v1/namespaces/default/configmaps"
    _, token = await plane.admin.create_account([PODS])
    created = await config_map(plane.admin, path, "one")
    plane.kill()
    assert not await plane.admin.is_ok("/readyz")
    assert is_listening(port_of(plane.etcd_url))

    await plane.start()

    _, found = await plane.admin.request("GET", f"{path}/one")
    assert int(found["metadata"]["resourceVersion"]) == created
    account = Api(plane.url, ca_file=plane.ca_file, token=token)
    assert (await account.request("GET", "/api/v1/pods"))[0] == 200
    assert [write.name for write in await plane.audit.writes(resource="configmaps")] == ["one"]


async def test_the_controller_manager_makes_pods_of_a_deployment_and_collects_them(
    private_control_plane: ControlPlane,
) -> None:
    plane = private_control_plane
    if plane.binaries.kube_controller_manager is None:
        pytest.skip("kube-controller-manager not found beside kube-apiserver")
    await plane.start_controller_manager()
    deployments, pods = "/apis/apps/v1/namespaces/default/deployments", "/api/v1/namespaces/default/pods"
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    await plane.admin.create(deployments, {"metadata": {"name": "a"}, "spec": spec})

    async def has_pods(number: int) -> bool:
        _, found = await plane.admin.request("GET", pods)
        return len(found["items"]) == number

    await until(lambda: has_pods(2), "two pods of the Deployment")
    await plane.admin.request("DELETE", f"{deployments}/a?propagationPolicy=Background")
    await until(lambda: has_pods(0), "no pods of the deleted Deployment", seconds=60)


async def test_a_server_that_cannot_start_says_why(control_plane_binaries: Binaries) -> None:
    with pytest.raises(ProcessEnded, match="unknown flag: --no-such-thing"):
        async with ControlPlane(control_plane_binaries, flags=["--no-such-thing"]):
            pass


async def test_nothing_is_left_after_stop(control_plane_binaries: Binaries) -> None:
    async with ControlPlane(control_plane_binaries) as plane:
        assert is_listening(port_of(plane.url))
        assert is_listening(port_of(plane.etcd_url))
        assert plane.etcd is not None
        assert plane.kube_apiserver is not None
        running = plane.etcd.pid, plane.kube_apiserver.pid
    for pid in running:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not plane.folder.exists()


async def test_the_servers_end_with_a_test_process_that_was_killed(control_plane_binaries: Binaries) -> None:
    programs = [str(control_plane_binaries.etcd), str(control_plane_binaries.kube_apiserver)]
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STARTS_AND_NEVER_STOPS, *programs),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    assert parent.stdout is not None
    folder, *urls = (await parent.stdout.readline()).decode().split()
    try:
        assert all(is_listening(port_of(url)) for url in urls)
        parent.send_signal(signal.SIGKILL)
        await parent.wait()

        async def are_gone() -> bool:
            return not any(is_listening(port_of(url)) for url in urls)

        await until(are_gone, "the end of the servers", seconds=10)
    finally:
        shutil.rmtree(folder)


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port
