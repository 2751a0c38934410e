"""Other programs on the sandbox and on kube-apiserver: each does the same on both, and is answered the same."""

import asyncio
import json
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from levelog_sandbox import Sandbox
from rigs.controlplane import ControlPlane

Json = dict[str, Any]
Steps = list[tuple[str, Any]]

TIMEOUT_SECONDS = 120.0
FLEETING = {
    *("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "lastTransitionTime", "time"),
    *("clusterIP", "clusterIPs", "continue", "kubernetes.io/change-cause", "kubectl.kubernetes.io/restartedAt"),
}
"""Another one on each server, or at each write."""
AGE = re.compile(r"\b\d+(s|ms|m)\b")


def steady(answer: Any) -> Any:
    """The answer without what differs from server to server; owners of fields in one order."""
    if isinstance(answer, dict):
        kept = {key: steady(value) for key, value in answer.items() if key not in FLEETING and value is not None}
        if "managedFields" in kept:
            kept["managedFields"] = sorted(kept["managedFields"], key=str)
        return kept
    return [steady(item) for item in answer] if isinstance(answer, list | tuple) else answer


def steady_text(text: str) -> str:
    """Output for people, without ages."""
    return "\n".join(" ".join(AGE.sub("AGE", line).split()) for line in text.splitlines())


def config_map(name: str, app: str = "x", **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": app}}, "data": data}


FIRST: Json = {"name": "a", "image": "x:1", "env": [{"name": "E", "value": "1"}], "ports": [{"containerPort": 80}]}
SECOND: Json = {"name": "b", "image": "y:1"}


def deployment(*containers: Json) -> Json:
    labels = {"app": "w"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w", "labels": labels}, "spec": spec}


def kubectl_story(kubeconfig: Path, namespace: str) -> Steps:
    """Client-side apply, patches, scales, sets, and what it prints: every step with its answer."""
    steps: Steps = []
    folder = kubeconfig.with_name(f"{kubeconfig.name}-files")

    def kubectl(*arguments: str, says: bool = True) -> str:
        flags = [f"--kubeconfig={kubeconfig}", f"--cache-dir={folder / 'cache'}", f"--namespace={namespace}"]
        command = ["kubectl", *flags, *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
        if says:
            answer = [ran.returncode, steady_text(ran.stdout), steady_text(ran.stderr)]
            steps.append((" ".join(arguments).replace(str(folder), ""), answer))
        return ran.stdout

    def shown(resource: str) -> None:
        steps.append((resource, steady(json.loads(kubectl("get", resource, "-o", "json", says=False)))))

    def manifest(body: Json) -> str:
        path = folder / "manifest.json"
        path.write_text(json.dumps(body))
        return str(path)

    folder.mkdir(parents=True)
    kubectl("create", "-f", manifest({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
    kubectl("apply", "-f", manifest(deployment(FIRST, SECOND)))
    shown("deployment/w")
    changed = deployment({**FIRST, "env": [{"name": "F", "value": "2"}]}, {"name": "c", "image": "z:1"})
    kubectl("apply", "-f", manifest(changed))
    shown("deployment/w")
    kubectl("apply", "-f", manifest(changed))
    kubectl("set", "image", "deployment/w", "a=x:3")
    kubectl("set", "env", "deployment/w", "-c", "a", "G=3", "F-")
    shown("deployment/w")
    kubectl("scale", "deployment/w", "--replicas=4")
    kubectl("scale", "deployment/w", "--replicas=6", "--current-replicas=1")
    kubectl("patch", "deployment", "w", "--subresource=scale", "--type=merge", '--patch={"spec":{"replicas":5}}')
    ports = '{"spec":{"template":{"spec":{"containers":[{"name":"a","ports":[{"containerPort":81}]}]}}}}'
    kubectl("patch", "deployment", "w", f"--patch={ports}")
    kubectl("rollout", "restart", "deployment/w")
    shown("deployment/w")
    kubectl("apply", "-f", manifest(config_map("m", x="1")))
    kubectl("label", "configmap", "m", "more=y")
    kubectl("annotate", "configmap", "m", "note=z")
    kubectl("label", "configmap", "m", "more-")
    kubectl("get", "configmaps", "-l", "app=x", "-o", "name")
    shown("configmap/m")
    kubectl("apply", "--server-side", "-f", manifest(config_map("s", x="1")))
    kubectl("apply", "--server-side", "--field-manager=other", "-f", manifest(config_map("s", x="2")))
    kubectl("get", "deployment", "none")
    kubectl("delete", "deployment", "w", "--wait=false")
    kubectl("delete", "configmaps", "--all", "--wait=false")
    kubectl("delete", "namespace", namespace, "--wait=false")
    shown(f"namespace/{namespace}")
    return steps


# One container by its name, which merge patches cannot do; one variable is new and one goes.
PATCH: Json = {"name": "a", "image": "x:2", "env": [{"name": "F", "value": "2"}, {"name": "E", "$patch": "delete"}]}
LEASE: Json = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 5}}
MAY_I: Json = {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}


def official_story(kubeconfig: Path, namespace: str) -> Steps:
    """The official client: typed APIs, whose models refuse what lacks a field, a watch, and the dynamic client."""
    kubernetes: Any = import_module("kubernetes")  # slow to load, and few of its types are declared
    steps: Steps = []
    with kubernetes.config.new_client_from_config(config_file=str(kubeconfig)) as api:
        api.user_agent = "official"
        core, apps = kubernetes.client.CoreV1Api(api), kubernetes.client.AppsV1Api(api)

        def note(step: str, answer: Any) -> Any:
            steps.append((step, steady(api.sanitize_for_serialization(answer))))
            return answer

        def refused(step: str, act: Callable[[], Any]) -> None:
            with pytest.raises(kubernetes.client.ApiException) as refusal:
                act()
            steps.append((step, steady(json.loads(refusal.value.body))))

        note("namespace", core.create_namespace({"metadata": {"name": namespace}}))
        made = note("create", core.create_namespaced_config_map(namespace, config_map("a", x="1")))
        note("read", core.read_namespaced_config_map("a", namespace))
        metadata = {"finalizers": ["example.com/f"], "labels": {"more": "y", "app": None}}
        note("patch", core.patch_namespaced_config_map("a", namespace, {"metadata": metadata}))
        operations = [{"op": "remove", "path": "/metadata/finalizers"}, {"op": "add", "path": "/data/y", "value": "2"}]
        note("patch by operations", core.patch_namespaced_config_map("a", namespace, operations))
        as_apply = {"field_manager": "applier", "force": True, "_content_type": "application/apply-patch+yaml"}
        note("apply", core.patch_namespaced_config_map("a", namespace, config_map("a", y="3"), **as_apply))
        refused("stale", lambda: core.replace_namespaced_config_map("a", namespace, made))
        refused("twice", lambda: core.create_namespaced_config_map(namespace, config_map("a")))
        refused("absent", lambda: core.read_namespaced_config_map("none", namespace))
        for name in "bcd":
            core.create_namespaced_config_map(namespace, config_map(name, app=name))
        first = note("page", core.list_namespaced_config_map(namespace, limit=3))
        rest = note("rest", core.list_namespaced_config_map(namespace, limit=3, _continue=first.metadata._continue))
        note("by label", core.list_namespaced_config_map(namespace, label_selector="app in (b,c)"))
        note("by name", core.list_namespaced_config_map(namespace, field_selector="metadata.name=d"))
        core.delete_namespaced_config_map("b", namespace)
        core.patch_namespaced_config_map("c", namespace, {"data": {"z": "1"}})
        watch = kubernetes.watch.Watch()
        since = {"resource_version": rest.metadata.resource_version, "timeout_seconds": 60}
        for event in watch.stream(core.list_namespaced_config_map, namespace, **since):
            note("event", {"type": event["type"], "object": event["raw_object"]})
            if event["type"] == "MODIFIED":
                watch.stop()
        note("delete all", core.delete_collection_namespaced_config_map(namespace, label_selector="app in (c,d)"))
        note("left", core.list_namespaced_config_map(namespace))

        note("deployment", apps.create_namespaced_deployment(namespace, deployment(FIRST, SECOND)))
        by_container = {"spec": {"template": {"spec": {"containers": [PATCH]}}}}
        note("patch by container", apps.patch_namespaced_deployment("w", namespace, by_container))
        scale = note("scale", apps.read_namespaced_deployment_scale("w", namespace))
        scale.spec.replicas = 5
        note("replace scale", apps.replace_namespaced_deployment_scale("w", namespace, scale))
        note("patch scale", apps.patch_namespaced_deployment_scale("w", namespace, {"spec": {"replicas": 3}}))
        refused("stale scale", lambda: apps.replace_namespaced_deployment_scale("w", namespace, scale))
        found = note("scaled", apps.read_namespaced_deployment("w", namespace))
        found.status.ready_replicas, found.status.replicas = 3, 3
        note("status", apps.replace_namespaced_deployment_status("w", namespace, found))
        note("read status", apps.read_namespaced_deployment_status("w", namespace))
        service = {"metadata": {"name": "s"}, "spec": {"ports": [{"name": "http", "port": 80}]}}
        note("service", core.create_namespaced_service(namespace, service))
        ports = [{"name": "admin", "port": 81}, {"port": 80, "targetPort": 8080}]
        note("patch by port", core.patch_namespaced_service("s", namespace, {"spec": {"ports": ports}}))
        leases = kubernetes.client.CoordinationV1Api(api)
        lease = note("lease", leases.create_namespaced_lease(namespace, LEASE))
        lease.spec.lease_transitions = 1
        note("replace lease", leases.replace_namespaced_lease("leader", namespace, lease))
        rights = kubernetes.client.AuthorizationV1Api(api)
        note("may I", rights.create_self_subject_access_review({"spec": MAY_I}))

        resources = kubernetes.dynamic.DynamicClient(api).resources
        config_maps = resources.get(api_version="v1", kind="ConfigMap")
        body = config_map("dynamic", x="1")
        applied = config_maps.server_side_apply(body, "dynamic", namespace, field_manager="d")
        note("dynamic apply", applied.to_dict())
        body = {"metadata": {"name": "dynamic"}, "data": {"x": "2"}}
        note("dynamic patch", config_maps.patch(body, namespace=namespace).to_dict())
        scales = resources.get(api_version="apps/v1", kind="Deployment").scale
        note("dynamic scale", scales.get("w", namespace).to_dict())
        scaled = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "w"}, "spec": {"replicas": 4}}
        note("dynamic rescale", scales.patch(scaled, "w", namespace).to_dict())
        note("foreground", apps.delete_namespaced_deployment("w", namespace, propagation_policy="Foreground"))
        note("end", core.delete_namespace(namespace))
        note("ending", core.read_namespace(namespace))
    return steps


NEEDS_KUBECTL = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl not found: put it on the PATH")


@pytest.mark.parametrize(
    "story", [official_story, pytest.param(kubectl_story, marks=[pytest.mark.long, NEEDS_KUBECTL])]
)
async def test_another_program_is_answered_the_same(
    control_plane: ControlPlane, tmp_path: Path, story: Callable[[Path, str], Steps]
) -> None:
    namespace = f"c-{secrets.token_hex(4)}"
    shutil.copy(control_plane.kubeconfig, tmp_path / "real")
    async with Sandbox(collects_garbage=False) as sandbox:
        ours = await asyncio.to_thread(story, sandbox.kubeconfig(tmp_path / "sandbox"), namespace)
    theirs = await asyncio.to_thread(story, tmp_path / "real", namespace)
    assert [step for step, _ in ours] == [step for step, _ in theirs]
    for (step, answer), (_, expected) in zip(ours, theirs, strict=True):
        assert answer == expected, step
