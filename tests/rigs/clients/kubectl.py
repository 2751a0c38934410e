"""The story of kubectl: client-side apply, patches, scales, sets, and what it prints."""

import json
import subprocess
from pathlib import Path
from typing import Any

from rigs.clients.notes import Notes, deployment, labelled, steady_text

TIMEOUT_SECONDS = 120.0


def story(kubeconfig: Path, namespace: str, folder: Path) -> list[tuple[str, Any]]:
    """Every step with its answer; `folder` is for files."""
    notes = Notes()

    def kubectl(*arguments: str, says: bool = True) -> str:
        flags = [f"--kubeconfig={kubeconfig}", f"--cache-dir={folder / 'cache'}", f"--namespace={namespace}"]
        ran = subprocess.run(
            ["kubectl", *flags, *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if says:
            notes.add(
                " ".join(arguments).replace(str(folder), ""),
                [ran.returncode, steady_text(ran.stdout), steady_text(ran.stderr)],
            )
        return ran.stdout

    def shown(resource: str) -> None:
        notes.add(resource, json.loads(kubectl("get", resource, "-o", "json", says=False)))

    def manifest(body: Any) -> str:
        path = folder / "manifest.json"
        path.write_text(json.dumps(body))
        return str(path)

    folder.mkdir(parents=True)
    kubectl("create", "-f", manifest({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
    first = deployment("w")
    kubectl("apply", "-f", manifest(first))
    shown("deployment/w")
    second = json.loads(json.dumps(first))
    containers = second["spec"]["template"]["spec"]["containers"]
    containers[0]["env"] = [{"name": "F", "value": "2"}]
    containers[1] = {"name": "c", "image": "z:1"}
    kubectl("apply", "-f", manifest(second))
    shown("deployment/w")
    kubectl("apply", "-f", manifest(second))
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
    kubectl("apply", "-f", manifest(labelled("m", x="1")))
    kubectl("label", "configmap", "m", "more=y")
    kubectl("annotate", "configmap", "m", "note=z")
    kubectl("label", "configmap", "m", "more-")
    kubectl("get", "configmaps", "-l", "app=x", "-o", "name")
    shown("configmap/m")
    kubectl("apply", "--server-side", "-f", manifest(labelled("s", x="1")))
    kubectl("apply", "--server-side", "--field-manager=other", "-f", manifest(labelled("s", x="2")))
    kubectl("get", "deployment", "none")
    kubectl("delete", "deployment", "w", "--wait=false")
    kubectl("delete", "configmaps", "--all", "--wait=false")
    kubectl("delete", "namespace", namespace, "--wait=false")
    shown(f"namespace/{namespace}")
    return notes.steps
