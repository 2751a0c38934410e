"""What the identity in use may do at the Kubernetes API, asked of the API before anything is begun."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from levelog.errors import ConfigurationError
from levelog.resources import ResourceType
from levelog_kube.client import KubeClient
from levelog_kube.discovery import IDENTITY_NAMESPACE
from levelog_kube.errors import ApiError

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WHO_AM_I: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_READS: Final = ("list", "watch")
WRITES: Final = ("get", "create", "patch", "delete")
"""What the actuator may send for an intent; it gets a target to find out what a lost answer did."""


class Permission(Struct, frozen=True, kw_only=True):
    """A verb on a resource, in one namespace or in all (empty)."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        what = self.resource + (f"/{self.subresource}" if self.subresource else "")
        named = f" {self.name}" if self.name else ""
        where = "" if self.name else (f" in namespace {self.namespace}" if self.namespace else " in all namespaces")
        return f"{self.verb} {what}{'.' + self.group if self.group else ''}{named}{where}"


IDENTITY: Final = Permission(verb="get", group="", resource="namespaces", name=IDENTITY_NAMESPACE)
"""Needed to tell one cluster from another."""


def to_read(resources: Iterable[ResourceType], namespace: str) -> list[Permission]:
    """What ingest needs to watch the resources."""
    return [permission for resource in resources for permission in on(resource, _READS, namespace)]


def on(resource: ResourceType, verbs: Sequence[str], namespace: str, subresource: str = "") -> list[Permission]:
    """The verbs on one resource."""
    where = namespace if resource.scope == "Namespaced" else ""
    return [
        Permission(verb=verb, group=resource.group, resource=resource.plural, namespace=where, subresource=subresource)
        for verb in verbs
    ]


async def refused(client: KubeClient, wanted: Iterable[Permission]) -> list[Permission]:
    """Those of the permissions that the identity does not have. Raises ApiError, Unavailable."""
    asked = list(wanted)
    answers = await asyncio.gather(*(_is_granted(client, permission) for permission in asked))
    return [permission for permission, is_granted in zip(asked, answers, strict=True) if not is_granted]


async def require(client: KubeClient, wanted: Iterable[Permission]) -> None:
    """Raise ConfigurationError, naming user, verbs and resources, unless all permissions are granted."""
    if missing := await refused(client, wanted):
        raise ConfigurationError(
            f"{await who_am_i(client)} may not {', nor '.join(map(str, missing))} at {client.server}: "
            "grant it with a ClusterRole or a Role, or see `levelog doctor FILE` for all that is needed"
        )


async def who_am_i(client: KubeClient) -> str:
    """Name of the user, as the API knows it; a description where the API does not tell."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await client.request("POST", _WHO_AM_I, body=msgspec.json.encode(body))
    except ApiError:  # served since Kubernetes 1.28
        return "the user of the kubeconfig"
    review: dict[str, Any] = answer.decode(dict[str, Any])
    return str(review["status"]["userInfo"].get("username", "the user of the kubeconfig"))


async def _is_granted(client: KubeClient, permission: Permission) -> bool:
    attributes = {name: value for name, value in msgspec.structs.asdict(permission).items() if value}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.request("POST", _REVIEWS, body=msgspec.json.encode(body))
    return bool(answer.decode(dict[str, Any])["status"].get("allowed"))
