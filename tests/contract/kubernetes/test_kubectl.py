"""kubectl on the sandbox and on kube-apiserver: it does the same on both, and is answered the same."""

import asyncio
import json
import re
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from levelog_sandbox import Sandbox
from rigs.controlplane import ControlPlane

Json = dict[str, Any]

TIMEOUT_SECONDS = 120.0
FLEETING = {
    *("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "lastTransitionTime", "time"),
    *("clusterIP", "clusterIPs", "kubernetes.io/change-cause", "kubectl.kubernetes.io/restartedAt"),
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
    return [steady(item) for item in answer] if isinstance(answer, list) else answer


def steady_text(text: str) -> str:
    """Output for people, without ages."""
    return "\n".join(" ".join(AGE.sub("AGE", line).split()) for line in text.splitlines())


def config_map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": "x"}}, "data": data}


def deployment(*containers: Json) -> Json:
    labels = {"app": "w"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w", "labels": labels}, "spec": spec}


def story(kubeconfig: Path, namespace: str, folder: Path) -> list[tuple[str, Any]]:
    """Client-side apply, patches, scales, sets, and what it prints: every step with its answer."""
    steps: list[tuple[str, Any]] = []

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
    first = {"name": "a", "image": "x:1", "env": [{"name": "E", "value": "1"}], "ports": [{"containerPort": 80}]}
    kubectl("apply", "-f", manifest(deployment(first, {"name": "b", "image": "y:1"})))
    shown("deployment/w")
    changed = deployment({**first, "env": [{"name": "F", "value": "2"}]}, {"name": "c", "image": "z:1"})
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


@pytest.mark.long
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl not found: put it on the PATH")
async def test_kubectl_is_answered_the_same(control_plane: ControlPlane, tmp_path: Path) -> None:
    namespace = f"c-{secrets.token_hex(4)}"
    async with Sandbox(collects_garbage=False) as sandbox:
        kubeconfig = sandbox.kubeconfig(tmp_path / "sandbox")
        ours = await asyncio.to_thread(story, kubeconfig, namespace, tmp_path / "ours")
    theirs = await asyncio.to_thread(story, control_plane.kubeconfig, namespace, tmp_path / "theirs")
    assert [step for step, _ in ours] == [step for step, _ in theirs]
    for (step, answer), (_, expected) in zip(ours, theirs, strict=True):
        assert answer == expected, step
