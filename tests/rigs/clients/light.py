"""The story of lightkube: typed resources and their subresources, apply, a watch, a wait."""

from importlib import import_module
from pathlib import Path
from typing import Any

from rigs.clients.notes import PATCH, Notes, deployment, labelled

lightkube: Any = import_module("lightkube")
core: Any = import_module("lightkube.resources.core_v1")
apps: Any = import_module("lightkube.resources.apps_v1")
types: Any = import_module("lightkube.types")


def story(kubeconfig: Path, namespace: str) -> list[tuple[str, Any]]:
    """Every step with its answer."""
    config = lightkube.KubeConfig.from_file(str(kubeconfig))
    client = lightkube.Client(config=config, namespace=namespace, field_manager="light", trust_env=False)
    notes = Notes()

    def note(step: str, answer: Any) -> Any:
        notes.add(step, answer.to_dict())
        return answer

    def refused(step: str, act: Any) -> None:
        notes.refused(step, lightkube.ApiError, act, lambda error: error.status.to_dict())

    try:
        note("namespace", client.create(core.Namespace.from_dict({"metadata": {"name": namespace}})))
        made = note("create", client.create(core.ConfigMap.from_dict(labelled("a", x="1"))))
        note("patch", client.patch(core.ConfigMap, "a", {"metadata": {"finalizers": ["example.com/f"]}}))
        merge = {"metadata": {"finalizers": None}}
        note("merge", client.patch(core.ConfigMap, "a", merge, patch_type=types.PatchType.MERGE))
        note("apply", client.apply(core.ConfigMap.from_dict(labelled("a", x="2")), field_manager="other", force=True))
        refused("stale", lambda: client.replace(made))
        refused("absent", lambda: client.get(core.ConfigMap, "none"))
        for name in "bcd":
            client.create(core.ConfigMap.from_dict(labelled(name, {"app": name})))
        for found in client.list(core.ConfigMap, chunk_size=2):
            note("listed", found)
        for found in client.list(core.ConfigMap, labels={"app": types_in("b", "c")}):
            note("by label", found)
        version = client.get(core.ConfigMap, "d").metadata.resourceVersion
        client.delete(core.ConfigMap, "b")
        for kind, found in client.watch(core.ConfigMap, resource_version=version, server_timeout=60):
            notes.add("event", [kind, found.to_dict()])
            break
        workloads(client, note)
        client.deletecollection(core.ConfigMap)
        notes.add("left", [each.to_dict() for each in client.list(core.ConfigMap)])
        client.delete(core.Namespace, namespace)
        note("ending", client.get(core.Namespace, namespace))
    finally:
        client.close()
    return notes.steps


def types_in(*values: str) -> Any:
    """A label that is one of these."""
    return import_module("lightkube").operators.in_(list(values))


def workloads(client: Any, note: Any) -> None:
    note("deployment", client.create(apps.Deployment.from_dict(deployment("w"))))
    note("patch by container", client.patch(apps.Deployment, "w", PATCH))
    scale = note("scale", client.get(apps.Deployment.Scale, "w"))
    scale.spec.replicas = 5
    note("replace scale", client.replace(scale, "w"))
    note("patch scale", client.patch(apps.Deployment.Scale, "w", {"spec": {"replicas": 3}}))
    status = {"status": {"replicas": 3, "conditions": [{"type": "Available", "status": "True"}]}}
    note("status", client.patch(apps.Deployment.Status, "w", status))
    more = {"status": {"conditions": [{"type": "Progressing", "status": "True"}]}}
    note("one more condition", client.patch(apps.Deployment.Status, "w", more))
    client.wait(apps.Deployment, "w", for_conditions=["Available"])
    note("waited", client.get(apps.Deployment, "w"))
    client.delete(apps.Deployment, "w", cascade=types.CascadeType.FOREGROUND)
    note("foreground", client.get(apps.Deployment, "w"))
