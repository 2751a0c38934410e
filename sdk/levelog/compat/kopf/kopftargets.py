"""What a Kopf decorator is for: one resource, which the file names, or several, which a cluster tells."""

import re
from collections.abc import Callable
from enum import Enum
from types import new_class
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from levelog.kinds import ServedKind
from levelog.resources import Resource, ResourceBase, Scope
from levelog_base.errors import OperatorError

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

UNASKED: Final = {("", "events"), ("events.k8s.io", "events"), ("coordination.k8s.io", "leases")}
"""What EVERYTHING leaves out: Events, as in Kopf, since handlers post some, and Leases, of which levelog renews one."""

_ANY: Final = "*"
_VERSION: Final = re.compile(r"v\d+((alpha|beta)\d+)?")
_PLURAL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_classes: Final[dict[tuple[str, str, str], type[ResourceBase]]] = {}


class ResourceMarker(Enum):
    """What Kopf has in place of a resource's name."""

    EVERYTHING = "EVERYTHING"


class KindChoice(Struct, frozen=True):
    """The kinds of a cluster that a decorator is for."""

    shown: str
    takes: Callable[[ServedKind], bool]


def choice(where: str, given: tuple[Any, ...], named: dict[str, Any]) -> KindChoice | None:
    """What positional and named selectors choose of a cluster's kinds; None: they name one.

    Raises OperatorError for what Kopf has no meaning for.
    """
    odd = [each for each in (*given, *named.values()) if each is not None and not isinstance(each, str)]
    category = named.get("category")
    if not odd and category is None:
        return None
    function = odd[0] if odd and callable(odd[0]) else None
    is_everything = odd == [ResourceMarker.EVERYTHING]
    if len(odd) > 1 or (odd and not is_everything and function is None):
        raise OperatorError(f"{where}: {odd[0]!r} names no resource: write ('example.com', 'v1', 'webs')")
    names = {key: value for key, value in named.items() if isinstance(value, str)}
    parts = tuple(each if isinstance(each, str) else _ANY for each in given) or (_ANY,)
    group, version, name = _split(where, parts, names)

    def takes(kind: ServedKind) -> bool:
        return (
            group in (None, kind.group)
            and version in (None, kind.version)
            and name in (_ANY, kind.plural, kind.kind, kind.singular, *kind.shortcuts)
            and all(getattr(kind, key) == names[key] for key in ("plural", "kind", "singular") if key in names)
            and names.get("shortcut") in (None, *kind.shortcuts)
            and category in (None, *kind.categories)
            and not (is_everything and (kind.group, kind.plural) in UNASKED)
            and (function is None or bool(function(kind)))
        )

    function_name = getattr(function, "__name__", "a function")
    return KindChoice("EVERYTHING" if is_everything else f"category={category!r}" if category else function_name, takes)


def chosen(kind: ServedKind) -> type[ResourceBase]:
    """Class of a kind of a cluster."""
    return _class(kind.group, kind.version, kind.plural, kind.kind, "Namespaced" if kind.namespaced else "Cluster")


def target(where: str, given: tuple[Any, ...], named: dict[str, Any]) -> type[ResourceBase]:
    """Class of the resource that positional and named selectors mean; the same one for the same resource.

    Raises OperatorError, with what to write instead, for what needs a cluster to tell.
    """
    named = {key: value for key, value in named.items() if value is not None}
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


def _class(group: str, version: str, plural: str, kind: str, served: Scope | Literal[""] = "") -> type[ResourceBase]:
    key = group, version, plural
    if key not in _classes:
        is_built_in = any(each[:3] == key for each in BUILT_IN)
        scope: Scope = served or ("Cluster" if is_built_in and plural in CLUSTER else "Namespaced")
        options = {"group": group, "version": version, "plural": plural, "kind": kind, "scope": scope, "crd": False}
        made: Any = new_class(kind, (Resource,), options)
        if not is_built_in and not served:
            made.resource_type = replace(made.resource_type, scope="")
        _classes[key] = made
    return _classes[key]
