"""The definitions of the operator's classes, installed in the cluster under development."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import GroupResource
from levelog_cli.crds.breaking import breaks
from levelog_cli.crds.definitions import API_VERSION, definitions_of, is_own
from levelog_cli.loading import load_classes
from levelog_cli.servers.clusters import connect_cluster
from levelog_cli.settings import Settings
from levelog_ingest.sync import list_pages
from levelog_kube.client import KubeClient
from levelog_kube.discovery import Served, definition_of, served_in

log = logging.getLogger(__name__)

_MANAGER: Final = "levelog-dev"
_PAUSE_SECONDS: Final = 0.02
_SERVED_SECONDS: Final = 10.0


class _Metadata(Struct, rename="camel"):
    resource_version: str = "0"


class StoredVersion(Struct):
    """The part of an object that counts here."""

    metadata: _Metadata


async def define(settings: Settings, files: Sequence[Path]) -> bool:
    """Apply the definitions of the classes, and wait until they are served; tells whether one is not as before.

    Logs what that may break of objects that are stored. Raises ConfigurationError, and what the API refuses.
    """
    classes = [cls for cls in load_classes(files) if is_own(cls)]
    if not classes:
        return False
    is_changed = False
    async with await connect_cluster(settings) as client:
        definitions = definitions_of(classes)
        for definition in definitions:
            name = definition["metadata"]["name"]
            earlier = await definition_of(client, GroupResource.parse(name))
            await apply(client, f"/apis/{API_VERSION}/customresourcedefinitions/{name}", definition)
            later = await definition_of(client, GroupResource.parse(name))
            if earlier is None or later is None or _generation(earlier) == _generation(later):
                continue
            is_changed = True
            path, lines = await _path_of(client, definition), list(breaks(earlier, later))
            if lines and any([page.items async for page in list_pages(client, path, 1)]):
                for line in lines:
                    log.warning("may break stored objects: %s %s", name, line)
        for definition in definitions:
            await until_defined(client, definition)
    return is_changed


async def find_served(client: KubeClient, api_version: str, kind: str) -> Served | None:
    """The served form of a kind; None if it is not served. Raises as `KubeClient.request`."""
    group, _, version = api_version.rpartition("/")
    return next((served for served in await served_in(client, group, version) if served.kind == kind), None)


async def apply(client: KubeClient, path: str, manifest: dict[str, Any]) -> str:
    """Apply a manifest, whatever others have set; returns the version that the object then has."""
    query = {"fieldManager": _MANAGER, "force": "true"}
    body, content_type = msgspec.json.encode(manifest), "application/apply-patch+yaml"
    answer = await client.request("PATCH", path, query=query, body=body, content_type=content_type)
    return answer.decode(StoredVersion).metadata.resource_version


def _generation(definition: dict[str, Any]) -> Any:
    return definition["metadata"].get("generation")


async def _path_of(client: KubeClient, definition: dict[str, Any]) -> str:
    """Path of the objects of a definition, in the version in which they are stored."""
    spec = definition["spec"]
    version = next(version["name"] for version in spec["versions"] if version["storage"])
    served = await _until_served(client, f"{spec['group']}/{version}", spec["names"]["kind"])
    return served.collection()


async def until_defined(client: KubeClient, definition: dict[str, Any]) -> None:
    """Wait until a definition that the API took is served. Raises ConfigurationError after ten seconds."""
    spec = definition["spec"]
    for version in spec["versions"]:
        if version.get("served"):
            await _until_served(client, f"{spec['group']}/{version['name']}", spec["names"]["kind"])


async def _until_served(client: KubeClient, api_version: str, kind: str) -> Served:
    """A resource, as soon as it is served. Raises ConfigurationError after ten seconds."""
    try:
        async with asyncio.timeout(_SERVED_SECONDS):
            while True:
                if (served := await find_served(client, api_version, kind)) is not None:
                    return served
                await asyncio.sleep(_PAUSE_SECONDS)
    except TimeoutError as error:
        raise ConfigurationError(f"the cluster does not serve {kind} in version {api_version}") from error
