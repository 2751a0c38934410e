"""The story of kubernetes, the official client: typed APIs, a watch, custom objects, the dynamic client."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from rigs.clients.notes import PATCH, Json, Notes, deployment, labelled

# Found at run time, as few of its types are declared.
kubernetes: Any = import_module("kubernetes")

APPLY = "application/apply-patch+yaml"
LEASE: Json = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 5}}


class _Story:
    def __init__(self, api: Any, namespace: str) -> None:
        self.notes = Notes()
        self.namespace = namespace
        self.api = api
        self.core = kubernetes.client.CoreV1Api(api)
        self.apps = kubernetes.client.AppsV1Api(api)

    def note(self, step: str, answer: Any) -> Any:
        self.notes.add(step, self.api.sanitize_for_serialization(answer))
        return answer

    def refused(self, step: str, act: Any) -> None:
        self.notes.refused(step, kubernetes.client.ApiException, act, lambda error: json.loads(error.body))


def story(kubeconfig: Path, namespace: str) -> list[tuple[str, Any]]:
    """Every step with its answer."""
    with kubernetes.config.new_client_from_config(config_file=str(kubeconfig)) as api:
        api.user_agent = "official"
        told = _Story(api, namespace)
        told.note("namespace", told.core.create_namespace({"metadata": {"name": namespace}}))
        config_maps(told)
        workloads(told)
        reviews(told)
        dynamic(told)
        told.note("end", told.core.delete_namespace(namespace))
        told.note("ending", told.core.read_namespace(namespace))
        return told.notes.steps


def config_maps(told: _Story) -> None:
    core, namespace, note = told.core, told.namespace, told.note
    made = note("create", core.create_namespaced_config_map(namespace, labelled("a", x="1")))
    note("read", core.read_namespaced_config_map("a", namespace))
    finalizers = {"metadata": {"finalizers": ["example.com/f"], "labels": {"more": "y", "app": None}}}
    note("patch", core.patch_namespaced_config_map("a", namespace, finalizers))
    operations = [{"op": "remove", "path": "/metadata/finalizers"}, {"op": "add", "path": "/data/y", "value": "2"}]
    note("patch by operations", core.patch_namespaced_config_map("a", namespace, operations))
    note(
        "apply",
        core.patch_namespaced_config_map(
            "a", namespace, labelled("a", y="3"), field_manager="applier", force=True, _content_type=APPLY
        ),
    )
    told.refused("stale", lambda: core.replace_namespaced_config_map("a", namespace, made))
    told.refused("twice", lambda: core.create_namespaced_config_map(namespace, labelled("a")))
    told.refused("absent", lambda: core.read_namespaced_config_map("none", namespace))
    for name in "bcd":
        core.create_namespaced_config_map(namespace, labelled(name, {"app": name}))
    first = note("page", core.list_namespaced_config_map(namespace, limit=3))
    rest = core.list_namespaced_config_map(namespace, limit=3, _continue=first.metadata._continue)
    note("next page", rest)
    note("by label", core.list_namespaced_config_map(namespace, label_selector="app in (b,c)"))
    note("by name", core.list_namespaced_config_map(namespace, field_selector="metadata.name=d"))
    watch = kubernetes.watch.Watch()
    version = rest.metadata.resource_version
    core.delete_namespaced_config_map("b", namespace)
    core.patch_namespaced_config_map("c", namespace, {"data": {"z": "1"}})
    for event in watch.stream(core.list_namespaced_config_map, namespace, resource_version=version, timeout_seconds=60):
        note("event", {"type": event["type"], "object": event["raw_object"]})
        if event["type"] == "MODIFIED":
            watch.stop()
    note("delete all", core.delete_collection_namespaced_config_map(namespace, label_selector="app in (c,d)"))
    note("left", core.list_namespaced_config_map(namespace))


def workloads(told: _Story) -> None:
    apps, core, namespace, note = told.apps, told.core, told.namespace, told.note
    note("deployment", apps.create_namespaced_deployment(namespace, deployment("w")))
    note("patch by container", apps.patch_namespaced_deployment("w", namespace, PATCH))
    scale = note("scale", apps.read_namespaced_deployment_scale("w", namespace))
    scale.spec.replicas = 5
    note("replace scale", apps.replace_namespaced_deployment_scale("w", namespace, scale))
    note("patch scale", apps.patch_namespaced_deployment_scale("w", namespace, {"spec": {"replicas": 3}}))
    told.refused("stale scale", lambda: apps.replace_namespaced_deployment_scale("w", namespace, scale))
    found = note("scaled", apps.read_namespaced_deployment("w", namespace))
    found.status.ready_replicas, found.status.replicas = 3, 3
    note("status", apps.replace_namespaced_deployment_status("w", namespace, found))
    note("read status", apps.read_namespaced_deployment_status("w", namespace))
    note("foreground", apps.delete_namespaced_deployment("w", namespace, propagation_policy="Foreground"))
    ports = [{"name": "http", "port": 80}]
    note("service", core.create_namespaced_service(namespace, {"metadata": {"name": "s"}, "spec": {"ports": ports}}))
    more = {"spec": {"ports": [{"name": "admin", "port": 81}, {"port": 80, "targetPort": 8080}]}}
    note("patch by port", core.patch_namespaced_service("s", namespace, more))
    leases = kubernetes.client.CoordinationV1Api(told.api)
    lease = note("lease", leases.create_namespaced_lease(namespace, LEASE))
    lease.spec.lease_transitions = 1
    note("replace lease", leases.replace_namespaced_lease("leader", namespace, lease))


def reviews(told: _Story) -> None:
    client, note = kubernetes.client, told.note
    rights = client.AuthorizationV1Api(told.api)
    asked = {"verb": "get", "resource": "pods", "namespace": told.namespace}
    note("may I", rights.create_self_subject_access_review({"spec": {"resourceAttributes": asked}}))


def dynamic(told: _Story) -> None:
    client = kubernetes.dynamic.DynamicClient(told.api)
    config_maps = client.resources.get(api_version="v1", kind="ConfigMap")
    namespace = told.namespace
    body = labelled("dynamic", x="1")
    told.notes.add(
        "dynamic apply", config_maps.server_side_apply(body, "dynamic", namespace, field_manager="d").to_dict()
    )
    patched = config_maps.patch({"metadata": {"name": "dynamic"}, "data": {"x": "2"}}, namespace=namespace)
    told.notes.add("dynamic patch", patched.to_dict())
    deployments = client.resources.get(api_version="apps/v1", kind="Deployment")
    told.apps.create_namespaced_deployment(namespace, deployment("dynamic"))
    told.notes.add("dynamic scale", deployments.scale.get("dynamic", namespace).to_dict())
    scaled = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "dynamic"}, "spec": {"replicas": 4}}
    told.notes.add("dynamic rescale", deployments.scale.patch(scaled, "dynamic", namespace).to_dict())
