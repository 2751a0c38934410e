"""What an API server serves, and which cluster it is."""

from typing import Final
from urllib.parse import quote

from msgspec import Struct

from levelog.objects import Cluster
from levelog_kube.client import KubeClient
from levelog_kube.errors import ApiError

IDENTITY_NAMESPACE: Final = "kube-system"  # there is one in every cluster, and nobody makes it anew


class Served(Struct, frozen=True, kw_only=True):
    """A resource as the API server serves it."""

    root: str
    """Path of its group and version, `/apis/apps/v1`."""
    plural: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...] = ()

    def collection(self, namespace: str = "") -> str:
        """Path of all objects, or of those in a namespace."""
        inside = f"/namespaces/{quote(namespace, safe='')}" if namespace and self.namespaced else ""
        return f"{self.root}{inside}/{self.plural}"

    def object(self, namespace: str, name: str, subresource: str = "") -> str:
        """Path of one object, or of its subresource (`status`)."""
        path = f"{self.collection(namespace)}/{quote(name, safe='')}"
        return f"{path}/{subresource}" if subresource else path


class _Resource(Struct, frozen=True):
    name: str
    kind: str
    namespaced: bool
    verbs: list[str] = []


class _ResourceList(Struct, frozen=True):
    resources: list[_Resource] | None = None


class _Metadata(Struct, frozen=True):
    uid: str = ""


class _Object(Struct, frozen=True):
    metadata: _Metadata


def root_path(group: str, version: str) -> str:
    """Path of a group and version."""
    return f"/apis/{quote(group, safe='')}/{quote(version, safe='')}" if group else f"/api/{quote(version, safe='')}"


async def resolve(client: KubeClient, group: str, version: str, plural: str) -> Served | None:
    """How a resource is served; None if it is not. Raises as `KubeClient.request`."""
    root = root_path(group, version)
    try:
        answer = await client.request("GET", root)
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    for resource in answer.decode(_ResourceList).resources or ():
        if resource.name == plural:
            return Served(
                root=root,
                plural=plural,
                kind=resource.kind,
                namespaced=resource.namespaced,
                verbs=tuple(resource.verbs),
            )
    return None


async def cluster_uid(client: KubeClient) -> Cluster:
    """Identity of the cluster: the uid of its namespace kube-system. Raises as `KubeClient.request`."""
    answer = await client.request("GET", f"/api/v1/namespaces/{IDENTITY_NAMESPACE}")
    return Cluster(answer.decode(_Object).metadata.uid)
