"""Objects from files, applied to a cluster under development when files or definitions change, or one was refused."""

import logging
import time
from collections.abc import Sequence
from itertools import chain
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from levelog_base.errors import ConfigurationError, LevelogError
from levelog_base.wire.manifests import each_manifest
from levelog_cli.crds.definitions import API_VERSION
from levelog_cli.editing.codefiles import Stamp, stamp_of
from levelog_cli.editing.forking import Child, Family
from levelog_cli.editing.installing import StoredVersion, apply, find_served, until_defined
from levelog_cli.editing.notes import BoardNotes
from levelog_cli.servers.clusters import connect_cluster
from levelog_cli.settings import Settings
from levelog_kube.client import KubeClient
from levelog_kube.discovery import found_at
from levelog_kube.requestfailures import ApiError

log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 2.0
"""Between two tries of what is refused: what it lacks may come from elsewhere."""


class ObjectFiles:
    """Applies the objects of files; `look` is called again and again, `renew` when there may be other definitions.

    What others have set or deleted since stays so, until the file is saved, a definition changes, or it starts anew.
    """

    def __init__(self, settings: Settings, files: Sequence[Path], family: Family, notes: BoardNotes) -> None:
        self._settings = settings
        self._files: Sequence[Path] = []
        self._given = files
        self._family = family
        self._notes = notes
        self._stamps: dict[Path, Stamp | None] = {}
        self._seen: dict[Path, Stamp | None] = {}
        self._due: list[tuple[Path, dict[str, Any]]] = []
        self._unread: dict[Path, list[str]] = {}
        self._again_at = float("inf")
        self._told: Sequence[str] = []
        self._applying: tuple[Child, Connection] | None = None

    @property
    def waited_for(self) -> list[Connection]:
        """What is worth a look when it has something to say."""
        return [self._applying[1]] if self._applying is not None else []

    def renew(self, *, is_redefined: bool) -> None:
        """Apply them with the next look, if that is the first time or there are other definitions."""
        if is_redefined or not self._files:
            self._files, self._stamps = self._given, {}

    def look(self) -> None:
        """Take in what became of the files, and apply them if there is a reason."""
        if self._applying is not None and not self._has_ended(*self._applying):
            return
        now = {file: stamp_of(file) for file in self._files}
        is_at_rest, self._seen = now == self._seen, now  # a save takes a while
        saved = [file for file in self._files if file not in self._stamps or now[file] != self._stamps[file]]
        if not (saved and is_at_rest) and time.monotonic() < self._again_at:
            return
        if saved and is_at_rest:
            if changed := [str(file) for file in saved if file in self._stamps]:
                log.info("changed: %s", ", ".join(changed))
            self._read(saved)
            self._stamps = now
        self._again_at = float("inf")
        told, telling = Pipe(duplex=False)

        async def work() -> None:
            async with await connect_cluster(self._settings) as client:
                telling.send(await _refusals(client, self._due))

        child = self._family.fork("objects", work)
        telling.close()
        self._applying = child, told

    def _read(self, files: Sequence[Path]) -> None:
        """Take what is in the files for what is to be applied."""
        for file in files:
            found: list[dict[str, Any] | ConfigurationError] = []
            try:
                found += each_manifest(file)
            except ConfigurationError as error:
                found.append(error)
            wrong = [each for each in found if isinstance(each, ConfigurationError)]
            self._unread[file] = [f"objects cannot be read from {each}; {_mend(file)}" for each in wrong]
            self._due = [each for each in self._due if each[0] != file]
            self._due += [(file, each) for each in found if not isinstance(each, ConfigurationError)]

    def _has_ended(self, child: Child, told: Connection) -> bool:
        """Tell of what came out, if it has."""
        if not told.poll():
            return False
        refusals: list[list[str]] | None
        try:
            refusals = told.recv()
        except EOFError:  # it was asked to end, or what ended it is on stderr
            refusals = None
        told.close()
        child.end()
        self._applying = None
        if refusals is None:
            return True
        self._due = [each for each, lines in zip(self._due, refusals, strict=True) if lines]
        if self._due:
            self._again_at = time.monotonic() + _AGAIN_SECONDS
        said = list(dict.fromkeys(chain(*self._unread.values(), *refusals)))
        for line in said:
            if line not in self._told:
                log.error("%s", line)
        self._told = said
        self._notes.put("objects", said)
        return True


async def _refusals(client: KubeClient, due: Sequence[tuple[Path, dict[str, Any]]]) -> list[list[str]]:
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
                log.info("%s %s", "changed" if before else "created", _named(manifest))
            if _is_definition(manifest):
                await until_defined(client, manifest)
        except ApiError as error:
            fields = [f"{cause.field}: {cause.message}" for cause in error.causes if cause.field]
            lines = fields or [error.message]
            refusals[number] = [f"{_named(manifest)}: {line}; {_mend(file)}" for line in lines]
        except LevelogError as error:
            refusals[number] = [f"{_named(manifest)}: {error}; {_mend(file)}"]
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


def _named(manifest: dict[str, Any]) -> str:
    metadata = manifest.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return f"{manifest.get('kind') or 'object'} {name}".strip()
