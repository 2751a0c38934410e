"""What an application needs at the Kubernetes API: the one source for checks, for the doctor and for `levelog rbac`."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from levelog.handlers.children import ChildrenView
from levelog.handlers.viewhandlers import ReconcileHandler
from levelog.intents import Verb
from levelog.resources import EVENTS, EVENTS_OF_CLUSTER, ResourceType
from levelog_actuator.requests import RIGHTS, Right
from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import GroupResource
from levelog_ingest.namespaces import has_patterns
from levelog_kube.client import KubeClient
from levelog_kube.discovery import IDENTITY_NAMESPACE
from levelog_kube.requestfailures import ApiError
from levelog_processors.program import Program

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WHO_AM_I: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_ORDER: Final = ("get", "list", "watch", "create", "update", "patch", "delete")
_READS: Final = (Right("list"), Right("watch"))


class Permission(Struct, frozen=True, kw_only=True):
    """A verb on a resource, in one namespace or in all (empty)."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def place(self) -> str:
        """The resource as it is named everywhere: `webs.example.com`, `webs/status.example.com`."""
        what = self.resource + (f"/{self.subresource}" if self.subresource else "")
        return f"{what}.{self.group}" if self.group else what

    def __str__(self) -> str:
        named = f" {self.name}" if self.name else ""
        where = "" if self.name else (f" in namespace {self.namespace}" if self.namespace else " in all namespaces")
        return f"{self.verb} {self.place}{named}{where}"


class NeededPermission(Struct, frozen=True):
    """A permission, and what it is for where that is not plain."""

    permission: Permission
    of: str = ""
    """The function whose intents need it."""
    intent: str = ""
    """The verb of these intents."""


IDENTITY: Final = Permission(verb="get", group="", resource="namespaces", name=IDENTITY_NAMESPACE)
"""Needed to tell one cluster from another."""


def ordered(permissions: Iterable[Permission]) -> list[Permission]:
    """Permissions in the order in which people list verbs."""
    return sorted(permissions, key=lambda one: (_ORDER.index(one.verb), one.namespace))


def to_identify() -> list[NeededPermission]:
    """The permissions by which ingest and actuator identify the cluster."""
    return [NeededPermission(IDENTITY)]


def to_read(resources: Iterable[ResourceType], namespaces: Sequence[str]) -> list[NeededPermission]:
    """The permissions of ingest to watch the resources, in the namespaces or, if none is named, in all.

    Patterns are looked for among the cluster's namespaces, and need rights in all, since any may come to match.
    """
    looked_for = [Permission(verb=right.verb, group="", resource="namespaces") for right in _READS]
    by_patterns = [NeededPermission(each) for each in looked_for if has_patterns(namespaces)]
    return [*by_patterns, *(need for resource in resources for need in _on(resource, _READS, namespaces))]


def to_write(program: Program, namespaces: Sequence[str]) -> list[NeededPermission]:
    """The actuator's permissions for the intents that reconcile functions declare."""
    return [
        need
        for name, handler in _reconcilers(program)
        if not handler.is_removing
        for write in handler.writes or ()
        for verb in write.verbs
        for need in _for(write.resource, verb, namespaces, of=f"{name}, anywhere" if write.is_anywhere else name)
    ]


def undeclared(program: Program) -> list[ReconcileHandler]:
    """Reconcile functions that do not say what they write."""
    return [handler for _, handler in _reconcilers(program) if handler.writes is None]


def statuses(program: Program) -> set[GroupResource]:
    """The resources whose status reconcile functions say they write, and that have to have it as a subresource."""
    return {
        write.resource.group_resource
        for _, handler in _reconcilers(program)
        if handler.needs_status
        for write in handler.writes or ()
        if "patch_status" in write.verbs
    }


def _reconcilers(program: Program) -> Iterator[tuple[str, ReconcileHandler]]:
    for operator in program.operators:
        for handler in operator.reconcilers.values():
            name = handler.view.name if isinstance(handler.view, ChildrenView) else handler.name
            yield f"{operator.name}/{name}", handler


def _for(resource: ResourceType, verb: Verb, namespaces: Sequence[str], *, of: str) -> Iterator[NeededPermission]:
    if verb == "event":  # these are where the objects are that they are about
        namespaces = (EVENTS_OF_CLUSTER,) if resource.scope == "Cluster" else namespaces
        resource = EVENTS
    yield from _on(resource, RIGHTS[verb], namespaces, of=of, intent=verb)


def _on(
    resource: ResourceType, rights: Iterable[Right], namespaces: Sequence[str], *, of: str = "", intent: str = ""
) -> Iterator[NeededPermission]:
    is_everywhere = not namespaces or resource.scope == "Cluster" or has_patterns(namespaces)
    for namespace in ("",) if is_everywhere else namespaces:
        for right in rights:
            permission = Permission(
                verb=right.verb,
                group=resource.group,
                resource=resource.plural,
                namespace=namespace,
                subresource=right.subresource,
            )
            yield NeededPermission(permission, of, intent)


async def refused(client: KubeClient, wanted: Iterable[NeededPermission]) -> list[Permission]:
    """The permissions that the identity does not have, each once. Raises ApiError, Unavailable."""
    asked = list(dict.fromkeys(need.permission for need in wanted))
    answers = await asyncio.gather(*(_is_granted(client, permission) for permission in asked))
    return [permission for permission, is_granted in zip(asked, answers, strict=True) if not is_granted]


async def require(client: KubeClient, wanted: Iterable[NeededPermission]) -> None:
    """Raise ConfigurationError, naming user, verbs and resources, unless all permissions are granted."""
    if missing := await refused(client, wanted):
        raise ConfigurationError(await refusal(client, missing))


async def refusal(client: KubeClient, missing: Sequence[Permission]) -> str:
    """A sentence that says who may not do what, and how to mend it."""
    return (
        f"{await who_am_i(client)} may not {', nor '.join(map(str, missing))} at {client.server}: "
        "`levelog rbac FILE` prints the roles that grant it, `levelog doctor FILE` shows what else is needed"
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
