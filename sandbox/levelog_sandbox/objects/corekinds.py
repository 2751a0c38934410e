"""Defaults and checks of kube-apiserver for single core kinds, beyond their schema.

Limits: the rules below only. No service account tokens in pods, no quota, no taints or system data of nodes.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from levelog_sandbox.api import refusals
from levelog_sandbox.api.refusals import RefusalCause
from levelog_sandbox.controllers import definitions
from levelog_sandbox.objects import podspec
from levelog_sandbox.schemas.registry import ServedResource

Json = dict[str, Any]

WORKLOADS: Final = ("deployments.apps", "replicasets.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch")


def filled(resource: ServedResource, body: Json) -> Json:
    """An incoming object with the defaults that depend on other fields; the writer owns them."""
    fill = _FILL.get(resource.name)
    body = fill(body) if fill else body
    if conditions := _at(body, ("status", "conditions")):
        times = dict.fromkeys(_TIMES.get(resource.name, ()))
        body = {**body, "status": {**body["status"], "conditions": [{**times, **each} for each in conditions]}}
    return body


def completed(resource: ServedResource, body: Json, number: int) -> Json:
    """A new object with what the server itself sets, and nobody owns; `number` differs from object to object."""
    complete = _COMPLETE.get(resource.name)
    body = complete(body, number) if complete else body
    if resource.name in _FIRST_STATUS:
        body = {**body, "status": _FIRST_STATUS[resource.name]}
    return body


def bare(body: Json) -> Json:
    """An object of the same kind that says nothing."""
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": {}}


def empty(resource: ServedResource, body: Json) -> Json:
    """The object that a create is compared with: empty, except for the structs of a core kind."""
    return {**bare(body), **_EMPTY.get(resource.name, {})}


def faults_of(resource: ServedResource, body: Json) -> list[RefusalCause]:
    """The faults of an object beyond its schema."""
    if resource.name == definitions.STORAGE:
        return definitions.faults(body)
    spec = body.get("spec", {})
    if resource.name == "pods":
        return podspec.faults(spec, "spec") if "spec" in body else [refusals.required("spec.containers")]
    if resource.name in WORKLOADS:
        template = spec.get("template", {})
        found = podspec.faults(template.get("spec", {}), "spec.template.spec")
        wanted, labels = spec.get("selector", {}).get("matchLabels") or {}, _at(template, ("metadata", "labels")) or {}
        if not wanted.items() <= labels.items():
            why = "`selector` does not match template `labels`"
            found.append(refusals.invalid_value("spec.template.metadata.labels", labels or None, why))
        return found
    return []


def update_faults(resource: ServedResource, live: Json, new: Json) -> list[RefusalCause]:
    """The faults of an update: of the object itself, and changes of immutable fields."""
    found = faults_of(resource, new)
    for path in _IMMUTABLE.get(resource.name, ()):
        before, after = _at(live, path), _at(new, path)
        if before != after:
            found.append(refusals.invalid_value(".".join(path), after, "field is immutable"))
    if resource.name == "pods":
        found += podspec.update_faults(live.get("spec", {}), new.get("spec", {}))
    if resource.name in {"configmaps", "secrets"} and live.get("immutable"):
        why = "Forbidden: field is immutable when `immutable` is set"
        changed = [field for field in ("data", "binaryData") if live.get(field) != new.get(field)]
        found += [RefusalCause(field, "FieldValueForbidden", why) for field in changed]
    if "deletionTimestamp" in live["metadata"]:
        held = live["metadata"].get("finalizers", ())
        added = [name for name in new["metadata"].get("finalizers", ()) if name not in held]
        if added:
            names = ", ".join(f'"{name}"' for name in added)
            why = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers"
            found.append(RefusalCause("metadata.finalizers", "FieldValueForbidden", f"{why} []string{{{names}}}"))
    return found


def _fill_pod(body: Json) -> Json:
    if "spec" in body:
        body = {**body, "spec": {"enableServiceLinks": True, **podspec.filled(body["spec"])}}
    return body


def _fill_workload(body: Json) -> Json:
    template = _at(body, ("spec", "template"))
    if not template or "spec" not in template:
        return body
    return {**body, "spec": {**body["spec"], "template": {**template, "spec": podspec.filled(template["spec"])}}}


def _fill_updated(field: str, limits: Json) -> Callable[[Json], Json]:
    """A workload whose pods are replaced by a strategy, with the limits of a rolling update that it leaves open."""

    def fill(body: Json) -> Json:
        spec = body.get("spec", {})
        strategy: Json = {"type": "RollingUpdate", **(spec.get(field) or {})}
        if strategy["type"] == "RollingUpdate":
            strategy["rollingUpdate"] = {**limits, **(strategy.get("rollingUpdate") or {})}
        return _fill_workload({**body, "spec": {**spec, field: strategy}})

    return fill


def _complete_job(body: Json, _: int) -> Json:
    """The selector of a job is made for it, from its own uid."""
    spec, about = body.get("spec", {}), body["metadata"]
    if spec.get("manualSelector") or "template" not in spec or "selector" in spec:
        return body
    uid, name = about.get("uid", ""), about.get("name", "")
    labels = {
        "controller-uid": uid,
        "batch.kubernetes.io/controller-uid": uid,
        "job-name": name,
        "batch.kubernetes.io/job-name": name,
    }
    template = spec["template"]
    described = template.get("metadata") or {}
    template = {**template, "metadata": {**described, "labels": {**(described.get("labels") or {}), **labels}}}
    selector = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    about = about if about.get("labels") else {**about, "labels": template["metadata"]["labels"]}
    return {**body, "metadata": about, "spec": {**spec, "template": template, "selector": selector}}


def _fill_service(body: Json) -> Json:
    spec = body.get("spec", {})
    ports = [{**port, "targetPort": port.get("targetPort", port.get("port"))} for port in spec.get("ports", ())]
    return {**body, "spec": {**spec, "ports": ports} if ports else spec}


def _fill_secret(body: Json) -> Json:
    """`stringData` is written into `data`, base64-encoded, and never read back."""
    texts = body.get("stringData")
    if not texts:
        return body
    data = {**(body.get("data") or {}), **{key: b64encode(text.encode()).decode() for key, text in texts.items()}}
    return {key: value for key, value in body.items() if key != "stringData"} | {"data": data}


def _fill_event(body: Json) -> Json:
    absent = {"eventTime": None, "firstTimestamp": None, "lastTimestamp": None}
    return {**absent, "source": {}, "reportingComponent": "", "reportingInstance": "", **body}


def _fill_namespace(body: Json) -> Json:
    about = body["metadata"]
    labels = {**(about.get("labels") or {}), "kubernetes.io/metadata.name": about.get("name", "")}
    return {**body, "metadata": {**about, "labels": labels}}


def _complete_pod(body: Json, _: int) -> Json:
    return {**body, "spec": {**podspec.ADMITTED, **body["spec"]}}


def _complete_namespace(body: Json, _: int) -> Json:
    return {**body, "spec": {"finalizers": ["kubernetes"]}}


def _complete_service(body: Json, number: int) -> Json:
    """An address of the range 10.96.0.0/16, which the sandbox does not take back."""
    spec = body.get("spec", {})
    if spec.get("type") == "ExternalName":
        return body
    address = spec.get("clusterIP") or f"10.96.{number // 250 % 250}.{number % 250 + 1}"
    families = {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}
    return {**body, "spec": {"clusterIP": address, "clusterIPs": [address], **families, **spec}}


_FILL: Final[Mapping[str, Callable[[Json], Json]]] = {
    "pods": _fill_pod,
    **dict.fromkeys(WORKLOADS, _fill_workload),
    "deployments.apps": _fill_updated("strategy", {"maxUnavailable": "25%", "maxSurge": "25%"}),
    "statefulsets.apps": _fill_updated("updateStrategy", {"partition": 0}),
    "daemonsets.apps": _fill_updated("updateStrategy", {"maxUnavailable": 1, "maxSurge": 0}),
    "services": _fill_service,
    "secrets": _fill_secret,
    "events": _fill_event,
    "events.events.k8s.io": _fill_event,
    "namespaces": _fill_namespace,
    definitions.STORAGE: definitions.filled,
}
_COMPLETE: Final[Mapping[str, Callable[[Json, int], Json]]] = {
    "pods": _complete_pod,
    "jobs.batch": _complete_job,
    "services": _complete_service,
    "namespaces": _complete_namespace,
    definitions.STORAGE: lambda body, _: {**body, "status": definitions.first_status(body)},
}
_FIRST_STATUS: Final[Mapping[str, Json]] = {
    "pods": {"phase": "Pending", "qosClass": "BestEffort"},
    "namespaces": {"phase": "Active"},
    "deployments.apps": {},
    "replicasets.apps": {"replicas": 0},
    "statefulsets.apps": {"replicas": 0, "availableReplicas": 0},
    "daemonsets.apps": {
        "currentNumberScheduled": 0,
        "desiredNumberScheduled": 0,
        "numberMisscheduled": 0,
        "numberReady": 0,
    },
    "jobs.batch": {},
    "services": {"loadBalancer": {}},
    "resourcequotas": {},
    "nodes": {},
}
# Times of conditions that are null when nobody says them. Origin: fields of Go that cannot be left out.
_TIMES: Final[Mapping[str, tuple[str, ...]]] = {
    "pods": ("lastProbeTime", "lastTransitionTime"),
    "deployments.apps": ("lastUpdateTime", "lastTransitionTime"),
    "replicasets.apps": ("lastTransitionTime",),
    "statefulsets.apps": ("lastTransitionTime",),
    "daemonsets.apps": ("lastTransitionTime",),
    "jobs.batch": ("lastProbeTime", "lastTransitionTime"),
    "nodes": ("lastHeartbeatTime", "lastTransitionTime"),
    "namespaces": ("lastTransitionTime",),
    "persistentvolumeclaims": ("lastProbeTime", "lastTransitionTime"),
}
_POD_TEMPLATE: Final[Json] = {"template": {"metadata": {}, "spec": {"containers": []}}}
_EMPTY: Final[Mapping[str, Json]] = {
    "pods": {"spec": {"containers": []}},
    "deployments.apps": {"spec": {**_POD_TEMPLATE, "strategy": {}}},
    "replicasets.apps": {"spec": _POD_TEMPLATE},
    "statefulsets.apps": {"spec": {**_POD_TEMPLATE, "updateStrategy": {}}},
    "daemonsets.apps": {"spec": {**_POD_TEMPLATE, "updateStrategy": {}}},
    "jobs.batch": {"spec": _POD_TEMPLATE},
    "services": {"spec": {}},
    "namespaces": {"spec": {}},
    "resourcequotas": {"spec": {}},
    "leases.coordination.k8s.io": {"spec": {}},
    "networkpolicies.networking.k8s.io": {"spec": {"podSelector": {}}},
    "persistentvolumeclaims": {"spec": {"resources": {}}},
    "events": {
        **dict.fromkeys(("eventTime", "firstTimestamp", "lastTimestamp")),
        "source": {},
        "reportingComponent": "",
        "reportingInstance": "",
        "involvedObject": {},
    },
    definitions.STORAGE: {"spec": {"names": {}}},
}
# Fields that may not change once the object is there. Origin: the validation of each kind.
_IMMUTABLE: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "deployments.apps": (("spec", "selector"),),
    "replicasets.apps": (("spec", "selector"),),
    "daemonsets.apps": (("spec", "selector"),),
    "jobs.batch": (("spec", "selector"), ("spec", "template")),
    "secrets": (("type",),),
    definitions.STORAGE: (("spec", "group"), ("spec", "names", "plural"), ("spec", "scope")),
}


def _at(body: Json, path: tuple[str, ...]) -> Any:
    value: Any = body
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
