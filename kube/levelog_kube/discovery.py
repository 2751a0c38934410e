"""What an API server serves, the schemas, and the identity of the cluster."""

import asyncio
import difflib
import logging
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import quote

from msgspec import Meta, Struct

from levelog.kinds import ServedKind
from levelog.resources import Manifest, Scope
from levelog_base.wire.objects import Cluster, GroupResource
from levelog_kube.client import REQUEST_TIMEOUT, Answer, KubeClient
from levelog_kube.requestfailures import ApiError

log = logging.getLogger(__name__)

IDENTITY_NAMESPACE: Final = "kube-system"  # there is one in every cluster, and nobody makes it anew
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Served(Struct, frozen=True, kw_only=True):
    """A resource as the API server serves it."""

    root: str
    """Path of its group and version, `/apis/apps/v1`."""
    plural: str
    kind: str
    namespaced: bool
    has_status: bool = False
    """Its status is a subresource."""

    @property
    def scope(self) -> Scope:
        """As a class says it."""
        return "Namespaced" if self.namespaced else "Cluster"

    def collection(self, namespace: str = "") -> str:
        """Path of all objects, or of those in a namespace."""
        inside = f"/namespaces/{quote(namespace, safe='')}" if namespace and self.namespaced else ""
        return f"{self.root}{inside}/{self.plural}"

    def object(self, namespace: str, name: str) -> str:
        """Path of one object."""
        return f"{self.collection(namespace)}/{quote(name, safe='')}"


class _Resource(Struct, frozen=True, rename="camel"):
    name: str
    kind: str
    namespaced: bool
    singular_name: str = ""
    short_names: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    verbs: list[str] = []


class _ResourceList(Struct, frozen=True):
    resources: list[_Resource] | None = None


class _Version(Struct, frozen=True):
    version: str


class _Versions(Struct, frozen=True):
    """An APIGroup, or the APIVersions of the core group, which are plain texts."""

    versions: list[_Version | str]


class _Group(Struct, frozen=True, rename="camel"):
    name: str
    preferred_version: _Version


class _Groups(Struct, frozen=True):
    groups: list[_Group]


class _Metadata(Struct, frozen=True):
    uid: Annotated[str, Meta(min_length=1)]


class _Object(Struct, frozen=True):
    metadata: _Metadata


def root_path(group: str, version: str) -> str:
    """Path of a group and version."""
    return f"/apis/{quote(group, safe='')}/{quote(version, safe='')}" if group else f"/api/{quote(version, safe='')}"


async def resolve(client: KubeClient, group: str, version: str, plural: str) -> Served | None:
    """How a resource is served; None if it is not. Raises as `KubeClient.request`."""
    served = await served_in(client, group, version)
    return next((resource for resource in served if resource.plural == plural), None)


async def served_in(client: KubeClient, group: str, version: str) -> list[Served]:
    """The resources of a group and version, without subresources; none if there is no such version. Raises as above."""
    found = await _listed(client, group, version)
    names = {resource.name for resource in found}
    return [
        Served(
            root=root_path(group, version),
            plural=resource.name,
            kind=resource.kind,
            namespaced=resource.namespaced,
            has_status=f"{resource.name}/status" in names,
        )
        for resource in found
        if "/" not in resource.name
    ]


async def _listed(client: KubeClient, group: str, version: str) -> list[_Resource]:
    answer = await found_at(client, root_path(group, version))
    return answer.decode(_ResourceList).resources or [] if answer else []


async def watchable_kinds(client: KubeClient) -> list[ServedKind]:
    """All kinds that can be listed and watched, in the preferred version of their group, sorted.

    Without those of an aggregated API that does not answer, with a warning. Raises as above.
    """
    groups = (await client.request("GET", "/apis")).decode(_Groups).groups
    places = [("", "v1"), *((group.name, group.preferred_version.version) for group in groups)]
    found = await asyncio.gather(*(_watchable_in(client, *place) for place in places))
    return sorted((kind for kinds in found for kind in kinds), key=lambda kind: (kind.group, kind.plural))


async def _watchable_in(client: KubeClient, group: str, version: str) -> list[ServedKind]:
    try:
        listed = await _listed(client, group, version)
    except ApiError as error:
        if error.status != HTTPStatus.SERVICE_UNAVAILABLE:
            raise
        log.warning("%s/%s does not answer, and its kinds are left out: %s", group, version, error)
        return []
    parts = [each.name.partition("/") for each in listed]
    return [
        ServedKind(
            group=group,
            version=version,
            plural=each.name,
            kind=each.kind,
            singular=each.singular_name or each.kind.lower(),
            namespaced=each.namespaced,
            shortcuts=each.short_names,
            categories=each.categories,
            subresources=frozenset(below for above, _, below in parts if above == each.name and below),
            verbs=frozenset(each.verbs),
        )
        for each in listed
        if "/" not in each.name and {"list", "watch"} <= {*each.verbs}
    ]


async def versions_of(client: KubeClient, group: str) -> list[str]:
    """The versions in which a group is served, the preferred one first; none if it is not. Raises as above."""
    answer = await found_at(client, f"/apis/{quote(group, safe='')}" if group else "/api")
    if answer is None:
        return []
    found = answer.decode(_Versions).versions
    return [each if isinstance(each, str) else each.version for each in found]


class Absent(Struct, frozen=True, kw_only=True):
    """A resource that is not served, and what its class may mean."""

    text: str
    """One sentence, without its stop."""
    plural: str = ""
    """Plural of a resource that is named like it, or of its kind."""
    version: str = ""
    """Version in which it is served."""


async def absence_of(client: KubeClient, group: str, version: str, plural: str, kind: str = "") -> Absent:
    """Say that a resource is not served, and what is served instead. Raises as above."""
    text = f"the cluster does not serve {GroupResource(group=group, resource=plural)} in version {version}"
    beside = await served_in(client, group, version)
    names = [each.plural for each in beside]
    if plural in names:  # by now
        return Absent(text=text)
    named = [each.plural for each in beside if each.kind.lower() in (kind.lower(), plural)]
    if alike := named or difflib.get_close_matches(plural, names, n=1):
        return Absent(text=f'{text}; did you mean "{alike[0]}"?', plural=alike[0])
    for other in await versions_of(client, group):
        if await resolve(client, group, other, plural) is not None:
            return Absent(text=f"{text}, but in version {other}", version=other)
    return Absent(text=f"{text}; it serves {', '.join(names)}" if group and names else text)


async def found_at(client: KubeClient, path: str, timeout: timedelta = REQUEST_TIMEOUT) -> Answer | None:  # noqa: ASYNC109
    """What the API has at a path; None if there is nothing. Raises as `KubeClient.request`."""
    try:
        return await client.request("GET", path, timeout=timeout)
    except ApiError as error:
        if error.status == 404:
            return None
        raise


async def cluster_uid(client: KubeClient) -> Cluster:
    """Identity of the cluster: the uid of its namespace kube-system. Raises as `KubeClient.request`."""
    answer = await client.request("GET", f"/api/v1/namespaces/{IDENTITY_NAMESPACE}")
    return Cluster(answer.decode(_Object).metadata.uid)


async def definition_of(client: KubeClient, resource: GroupResource) -> Manifest | None:
    """The CustomResourceDefinition of a resource; None if there is none. Raises as `KubeClient.request`."""
    path = f"{_DEFINITIONS}/{quote(str(resource), safe='')}"
    answer = await found_at(client, path) if resource.group else None
    return answer.decode(dict[str, Any]) if answer else None
