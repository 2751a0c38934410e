"""The resource of a Kopf decorator: refused unless group, version and plural follow without asking a cluster."""

import re
from enum import Enum
from types import new_class
from typing import Any, Final

from msgspec.structs import replace

from levelog.errors import OperatorError
from levelog.resources import Resource, ResourceBase, Scope

BUILT_IN: Final[tuple[tuple[str, str, str, str, str], ...]] = (
    ("", "v1", "configmaps", "ConfigMap", "cm"),
    ("", "v1", "endpoints", "Endpoints", "ep"),
    ("", "v1", "events", "Event", "ev"),
    ("", "v1", "limitranges", "LimitRange", "limits"),
    ("", "v1", "namespaces", "Namespace", "ns"),
    ("", "v1", "nodes", "Node", "no"),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc"),
    ("", "v1", "persistentvolumes", "PersistentVolume", "pv"),
    ("", "v1", "pods", "Pod", "po"),
    ("", "v1", "replicationcontrollers", "ReplicationController", "rc"),
    ("", "v1", "resourcequotas", "ResourceQuota", "quota"),
    ("", "v1", "secrets", "Secret", ""),
    ("", "v1", "serviceaccounts", "ServiceAccount", "sa"),
    ("", "v1", "services", "Service", "svc"),
    ("apps", "v1", "daemonsets", "DaemonSet", "ds"),
    ("apps", "v1", "deployments", "Deployment", "deploy"),
    ("apps", "v1", "replicasets", "ReplicaSet", "rs"),
    ("apps", "v1", "statefulsets", "StatefulSet", "sts"),
    ("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa"),
    ("batch", "v1", "cronjobs", "CronJob", "cj"),
    ("batch", "v1", "jobs", "Job", ""),
    ("networking.k8s.io", "v1", "ingresses", "Ingress", "ing"),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", "netpol"),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", "pdb"),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", ""),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", ""),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", ""),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role", ""),
    ("storage.k8s.io", "v1", "storageclasses", "StorageClass", "sc"),
)
"""Group, version, plural, kind and short name of what Kubernetes serves itself, since 1.30 at the latest."""
CLUSTER: Final = {"namespaces", "nodes", "persistentvolumes", "clusterroles", "clusterrolebindings", "storageclasses"}
"""Built-in resources without namespaces."""

_VERSION: Final = re.compile(r"v\d+((alpha|beta)\d+)?")
_PLURAL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_classes: Final[dict[tuple[str, str, str], type[ResourceBase]]] = {}


class ResourceMarker(Enum):
    """What Kopf has in place of a resource's name; refused when a decorator is given it."""

    EVERYTHING = "EVERYTHING"


def target(
    where: str, given: tuple[Any, ...], named: dict[str, Any], handler: str = "the handler"
) -> type[ResourceBase]:
    """Class of the resource that positional and named selectors mean; the same one for the same resource.

    Raises OperatorError, with what to write instead, for what may mean several resources, or needs a cluster to tell.
    """
    named = {key: value for key, value in named.items() if value is not None}
    odd = [each for each in (*given, *named.values()) if not isinstance(each, str)]
    if odd or "category" in named:
        category = named.get("category")
        listed = f"--categories={category}" if isinstance(category, str) else "--verbs=list,watch"
        shown = (
            f"category={category!r}"
            if category
            else "EVERYTHING"
            if isinstance(odd[0], ResourceMarker)
            else repr(odd[0])
        )
        raise OperatorError(
            f"{where}: {handler} is for {shown}, which may mean several resources; levelog has to know them before it "
            f"sees a cluster: name those that you mean, of `kubectl api-resources {listed}`, in a loop: for each in "
            f"[('', 'v1', 'pods'), ('example.com', 'v1', 'webs')]: {where}(*each)({handler})"
        )
    group, version, name = _split(where, given, named)
    found = _built_in(group, version, name, named)
    if found is None:
        found = _custom(where, group, version, named.get("plural") or name, named.get("kind"))
    return _class(*found)


def _split(where: str, given: tuple[str, ...], named: dict[str, str]) -> tuple[str | None, str | None, str]:
    """Group, version and name, where they are given; a name may be any of those that a resource has."""
    group, version = named.get("group"), named.get("version")
    name = next((named[key] for key in ("plural", "kind", "singular", "shortcut") if key in named), "")
    match given:
        case ():
            pass
        case (text,):
            name, dot, rest = text.partition(".")
            first, _, others = rest.partition(".")
            if dot:
                version, group = (first, others) if _VERSION.fullmatch(first) else (version, rest)
        case (above, name):
            if "/" in above:
                group, _, version = above.partition("/")
            elif _VERSION.fullmatch(above):
                group, version = "", above
            else:
                group = above
        case (group, version, name):
            pass
        case _:
            raise OperatorError(f"{where}: takes up to three names of a resource, not {len(given)}: {given!r}")
    if not name:
        raise OperatorError(f"{where}: names no resource: write ('example.com', 'v1', 'webs')")
    return group, version, name


def _built_in(
    group: str | None, version: str | None, name: str, named: dict[str, str]
) -> tuple[str, str, str, str] | None:
    for each in BUILT_IN:
        is_named = name in (each[2], each[3], each[3].lower()) or (name == each[4] != "")
        if (
            is_named
            and group in (None, each[0])
            and version in (None, each[1])
            and named.get("kind", each[3]) == each[3]
        ):
            return each[:4]
    return None


def _custom(
    where: str, group: str | None, version: str | None, plural: str, kind: str | None
) -> tuple[str, str, str, str]:
    if not group or not version or not _PLURAL.fullmatch(plural):
        missing = [
            *(["its group"] if not group else []),
            *(["its version"] if not version else []),
            *([f"its plural, where {plural!r} stands"] if not _PLURAL.fullmatch(plural) else []),
        ]
        raise OperatorError(
            f"{where}: {plural!r} does not say which resource it is without a cluster to ask; missing "
            f"{' and '.join(missing)}: write ('example.com', 'v1', 'webs')"
        )
    return group, version, plural, kind or _kind(plural)


def _kind(plural: str) -> str:
    """A kind for a plural, for messages; of an object that was read, the kind is in the object."""
    singular = plural.removesuffix("ies") + "y" if plural.endswith("ies") else plural.removesuffix("s")
    return "".join(part.capitalize() for part in singular.split("-"))


def _class(group: str, version: str, plural: str, kind: str) -> type[ResourceBase]:
    key = group, version, plural
    if key not in _classes:
        is_built_in = any(each[:3] == key for each in BUILT_IN)
        scope: Scope = "Cluster" if is_built_in and plural in CLUSTER else "Namespaced"
        options = {"group": group, "version": version, "plural": plural, "kind": kind, "scope": scope, "crd": False}
        made: Any = new_class(kind, (Resource,), options)
        if not is_built_in:
            made.resource_type = replace(made.resource_type, scope="")
        _classes[key] = made
    return _classes[key]
