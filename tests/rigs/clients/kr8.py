"""The story of kr8s: objects that act, discovery, a watch."""

from importlib import import_module
from pathlib import Path
from typing import Any

from rigs.clients.notes import Notes, deployment, labelled

kr8s: Any = import_module("kr8s")
kr8s_async: Any = import_module("kr8s.asyncio")
objects: Any = import_module("kr8s.asyncio.objects")


async def story(kubeconfig: Path, namespace: str) -> list[tuple[str, Any]]:
    """Every step with its answer."""
    api = await kr8s_async.api(kubeconfig=str(kubeconfig), namespace=namespace)
    try:
        return await _told(api, namespace)
    finally:
        await api._session.aclose()  # nothing public closes its connections


async def _told(api: Any, namespace: str) -> list[tuple[str, Any]]:
    notes = Notes()

    def note(step: str, found: Any) -> None:
        notes.add(step, found.raw.to_dict() if hasattr(found.raw, "to_dict") else dict(found.raw))

    home = await objects.Namespace({"metadata": {"name": namespace}}, api=api)
    await home.create()
    note("namespace", home)
    one = await objects.ConfigMap({**labelled("a", x="1")}, namespace=namespace, api=api)
    await one.create()
    note("create", one)
    notes.add("exists", await one.exists())
    await one.patch({"data": {"y": "2"}})
    note("patch", one)
    await one.label(more="y")
    await one.annotate(note="z")
    note("labelled", one)
    await one.remove_label("more")
    note("label removed", one)
    for name in "bcd":
        await (await objects.ConfigMap(labelled(name, {"app": name}), namespace=namespace, api=api)).create()
    listed = [each async for each in api.get("configmaps", namespace=namespace)]
    notes.add("listed", sorted(each.name for each in listed))
    chosen = [each async for each in api.get("configmaps", namespace=namespace, label_selector={"app": "b"})]
    notes.add("by label", [each.name for each in chosen])
    await workloads(api, namespace, note)
    try:
        await objects.ConfigMap.get("none", namespace=namespace, api=api)
    except kr8s.NotFoundError as error:
        notes.add("absent", type(error).__name__)
    await chosen[0].delete()
    notes.add("deleted", await chosen[0].exists())
    kinds = {resource["name"]: sorted(resource["verbs"]) for resource in await api.api_resources()}
    served = ("configmaps", "deployments", "pods", "namespaces", "tokenreviews", "subjectaccessreviews")
    notes.add("kinds", {name: kinds[name] for name in served})
    notes.add("kind", await api.lookup_kind("deploy"))
    await home.delete()
    await home.refresh()
    note("ending", home)
    return notes.steps


async def workloads(api: Any, namespace: str, note: Any) -> None:
    workload = await objects.Deployment(deployment("w"), namespace=namespace, api=api)
    await workload.create()
    note("deployment", workload)
    await workload.scale(5)
    note("scaled", workload)
    # It sends merge patches, which replace lists, and JSON patches.
    await workload.patch(
        [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "x:2"}], type="json"
    )
    note("patched by operations", workload)
    await workload.patch({"spec": {"replicas": 3}}, subresource="scale")
    note("the scale is answered", workload)
    await workload.refresh()
    note("scaled by its scale", workload)
    await workload.patch({"status": {"replicas": 3, "readyReplicas": 3}}, subresource="status")
    note("status", workload)
