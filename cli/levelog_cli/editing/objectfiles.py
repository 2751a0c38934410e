"""Objects from files, applied to a cluster under development when a file is saved, or one was refused."""

import asyncio
import logging
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from levelog_base.errors import ConfigurationError, LevelogError
from levelog_base.wire.manifests import each_manifest
from levelog_cli.crds.definitions import API_VERSION
from levelog_cli.editing.forking import LOOK_SECONDS
from levelog_cli.editing.installing import StoredVersion, apply, find_served, until_defined
from levelog_cli.editing.notes import BoardNotes
from levelog_cli.editing.watchedfiles import WatchedFiles
from levelog_cli.servers.clusters import connect_cluster
from levelog_cli.settings import Settings
from levelog_kube.client import KubeClient
from levelog_kube.discovery import found_at
from levelog_kube.requestfailures import ApiError

log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 2.0
"""Between two tries of what is refused: what it lacks may come from elsewhere."""
_Due = tuple[Path, dict[str, Any]]
"""An object, and the file that it is in."""


async def keep_applied(settings: Settings, files: Sequence[Path], notes: BoardNotes) -> None:
    """Apply the objects of the files, and again what is saved or was refused, until cancelled.

    What others have set or deleted since stays so.
    """
    watched = WatchedFiles(lambda: files)
    saved: Sequence[Path] = files
    due: list[_Due] = []
    unread: dict[Path, list[str]] = {}
    told: Sequence[str] = []
    again_at = float("inf")
    async with await connect_cluster(settings) as client:
        while True:
            if saved:
                watched.mark()
            for file in saved:
                found, unread[file] = _read(file)
                due = [each for each in due if each[0] != file] + found
            if saved or time.monotonic() >= again_at:
                refusals = await _refusals(client, due)
                due = [each for each, lines in zip(due, refusals, strict=True) if lines]
                again_at = time.monotonic() + _AGAIN_SECONDS if due else float("inf")
                said = list(dict.fromkeys(chain(*unread.values(), *refusals)))
                for line in said:
                    if line not in told:
                        log.error("%s", line)
                told = said
                notes.put("objects", said)
            await asyncio.sleep(LOOK_SECONDS)
            if saved := watched.changed():
                log.info("changed: %s", ", ".join(map(str, saved)))


def _read(file: Path) -> tuple[list[_Due], list[str]]:
    """The objects of a file, and what of it cannot be read."""
    found: list[dict[str, Any] | ConfigurationError] = []
    try:
        found += each_manifest(file)
    except ConfigurationError as error:
        found.append(error)
    objects = [(file, each) for each in found if not isinstance(each, ConfigurationError)]
    wrong = [each for each in found if isinstance(each, ConfigurationError)]
    return objects, [f"objects cannot be read from {each}; {_mend(file)}" for each in wrong]


async def _refusals(client: KubeClient, due: Sequence[_Due]) -> list[list[str]]:
    """Apply what the files say, definitions first; returns for each object why it is refused, empty if it is not."""
    refusals: list[list[str]] = [[] for _ in due]
    unserved: dict[str, list[int]] = {}
    for number in sorted(range(len(due)), key=lambda number: not _is_definition(due[number][1])):
        file, manifest = due[number]
        try:
            path = await _path(client, manifest)
            if path is None:
                unserved.setdefault(f"{manifest['kind']} in version {manifest['apiVersion']}", []).append(number)
                continue
            before = await _version(client, path)
            if await apply(client, path, manifest) != before:
                log.info("%s %s", "changed" if before else "created", _title(manifest))
            if _is_definition(manifest):
                await until_defined(client, manifest)
        except ApiError as error:
            fields = [f"{cause.field}: {cause.message}" for cause in error.causes if cause.field]
            lines = fields or [error.message]
            refusals[number] = [f"{_title(manifest)}: {line}; {_mend(file)}" for line in lines]
        except LevelogError as error:
            refusals[number] = [f"{_title(manifest)}: {error}; {_mend(file)}"]
    for kind, numbers in unserved.items():
        count = f"are {len(numbers)} objects" if len(numbers) > 1 else "is an object"
        inside = ", ".join(dict.fromkeys(str(due[number][0]) for number in numbers))
        for number in numbers:
            refusals[number] = [f"the cluster does not serve {kind}, of which there {count} in {inside}"]
    return refusals


def _is_definition(manifest: dict[str, Any]) -> bool:
    return manifest.get("apiVersion") == API_VERSION and manifest.get("kind") == "CustomResourceDefinition"


def _mend(file: Path) -> str:
    return f"mend {file}: it is applied when you save it"


async def _path(client: KubeClient, manifest: dict[str, Any]) -> str | None:
    """The URL of the object of a manifest; None if its kind is not served. Raises ConfigurationError if it has none."""
    metadata = manifest.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name, namespace = (str(metadata.get(each) or "") for each in ("name", "namespace"))
    kind, api_version = (str(manifest.get(each) or "") for each in ("kind", "apiVersion"))
    if not (name and kind and api_version):
        raise ConfigurationError(
            "an object needs apiVersion, kind and metadata.name"
            + (", as generateName would make another one each time" if metadata.get("generateName") else "")
        )
    served = await find_served(client, api_version, kind)
    return served.object(namespace or "default", name) if served is not None else None


async def _version(client: KubeClient, path: str) -> str:
    """The resourceVersion of an object; empty where there is none."""
    found = await found_at(client, path)
    return found.decode(StoredVersion).metadata.resource_version if found is not None else ""


def _title(manifest: dict[str, Any]) -> str:
    metadata = manifest.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return f"{manifest.get('kind') or 'object'} {name}".strip()
