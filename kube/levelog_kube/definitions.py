"""What the definition of a custom resource says of its objects."""

from typing import Final
from urllib.parse import quote

from msgspec import Raw, Struct

from levelog.wire.objects import GroupResource
from levelog_kube.client import KubeClient
from levelog_kube.errors import ApiError

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class _Schema(Struct, frozen=True, rename={"schema": "openAPIV3Schema"}):
    schema: Raw = Raw()


class _Version(Struct, frozen=True):
    name: str
    schema: _Schema = _Schema()


class _Spec(Struct, frozen=True):
    versions: list[_Version]


class _Definition(Struct, frozen=True):
    spec: _Spec


async def schemas_of(client: KubeClient, resource: GroupResource) -> dict[str, Raw]:
    """The JSON schemas of a custom resource, by version; none for a resource that is built in, or not defined now.

    Raises as `KubeClient.request`.
    """
    if not resource.group:
        return {}
    try:
        answer = await client.request("GET", f"{_DEFINITIONS}/{quote(str(resource), safe='')}")
    except ApiError as error:
        if error.status == 404:
            return {}
        raise
    versions = answer.decode(_Definition).spec.versions
    return {version.name: version.schema.schema for version in versions if bytes(version.schema.schema)}
