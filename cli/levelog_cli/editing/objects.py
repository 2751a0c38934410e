"""What a cluster under development is given: the definitions of the operator's classes, and objects from files."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from levelog.errors import ConfigurationError
from levelog_cli.crds.definitions import API_VERSION, definitions_of, is_own
from levelog_cli.loading import load_classes
from levelog_cli.servers.clusters import connect_cluster
from levelog_cli.settings import Settings
from levelog_kube.client import KubeClient
from levelog_kube.discovery import Served, served_in
from levelog_kube.failures import ApiError

log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.02
_SERVED_SECONDS: Final = 10.0
_CONFLICT: Final = 409


async def define_and_create(settings: Settings, files: Sequence[Path], objects: Sequence[Path]) -> None:
    """Apply the definitions of the classes, and create what is not there of the objects, once each can be served.

    Raises ConfigurationError for a file that cannot be read, and what the API refuses.
    """
    classes = [cls for cls in load_classes(files) if is_own(cls)]
    definitions = definitions_of(classes) if classes else []
    manifests = [manifest for file in objects for manifest in _manifests(file)]
    async with await connect_cluster(settings) as client:
        for definition in definitions:
            await _apply(client, definition)
        for spec in (definition["spec"] for definition in definitions):
            for version in spec["versions"]:
                await _served(client, f"{spec['group']}/{version['name']}", spec["names"]["kind"])
        for manifest in manifests:
            await _create(client, manifest)


async def _apply(client: KubeClient, definition: dict[str, Any]) -> None:
    await client.request(
        "PATCH",
        f"/apis/{API_VERSION}/customresourcedefinitions/{definition['metadata']['name']}",
        query={"fieldManager": "levelog-dev", "force": "true"},
        body=msgspec.json.encode(definition),
        content_type="application/apply-patch+yaml",
    )


async def _served(client: KubeClient, api_version: str, kind: str) -> Served:
    """A resource, as soon as it is served. Raises ConfigurationError after ten seconds."""
    group, _, version = api_version.rpartition("/")
    try:
        async with asyncio.timeout(_SERVED_SECONDS):
            while True:
                for served in await served_in(client, group, version):
                    if served.kind == kind:
                        return served
                await asyncio.sleep(_PAUSE_SECONDS)
    except TimeoutError as error:
        raise ConfigurationError(f"the cluster does not serve {kind} in version {api_version}") from error


async def _create(client: KubeClient, manifest: dict[str, Any]) -> None:
    name = (manifest.get("metadata") or {}).get("name", "")
    kind, api_version = (str(manifest.get(each, "")) for each in ("kind", "apiVersion"))
    if not (name and kind and api_version):
        raise ConfigurationError("an object to create needs apiVersion, kind and metadata.name")
    served = await _served(client, api_version, kind)
    try:
        path = served.collection(manifest["metadata"].get("namespace", "default"))
        await client.request("POST", path, body=msgspec.json.encode(manifest))
    except ApiError as error:
        if error.status != _CONFLICT:
            raise
    else:
        log.info("created %s %s", kind, name)


def _manifests(file: Path) -> list[dict[str, Any]]:
    try:
        documents: list[Any] = [each for each in yaml.safe_load_all(file.read_text()) if each is not None]
        return msgspec.convert(documents, list[dict[str, Any]])
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"objects cannot be read from {file}: {error}") from error
