"""Objects from files, applied to a cluster under development when files or definitions change, or one was refused."""

import logging
import time
from collections.abc import Collection, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from levelog_base.errors import ConfigurationError, LevelogError
from levelog_base.wire.manifests import each_manifest
from levelog_cli.crds.definitions import API_VERSION
from levelog_cli.editing.codefiles import Stamp, stamp_of
from levelog_cli.editing.forking import Child, Family, until_gone
from levelog_cli.editing.installing import Break, StoredVersion, apply, find_served, still_there, until_defined
from levelog_cli.editing.notes import BoardNotes
from levelog_cli.running import execute
from levelog_cli.servers.clusters import connect_cluster
from levelog_cli.settings import Settings
from levelog_kube.client import KubeClient
from levelog_kube.failures import ApiError

log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 2.0
"""Between two tries of what is refused: what it lacks may come from elsewhere."""
_CONFLICT: Final = 409


class AppliedFiles(Struct, frozen=True):
    """The outcome of applying the files."""

    refused: list[str] = []
    kept: list[str] = []
    """Objects that differ, or are gone, since somebody else has set or deleted what the file says."""
    there: list[str] = []
    """Paths of the objects that are as the files say."""
    breaks: list[Break] = []
    """The breaks that were asked about and of which there are still objects as they were."""


class ObjectFiles:
    """Keeps objects as files say; `look` is called again and again, `renew` when there may be other definitions.

    What others have set or deleted since stays so, until the file is saved.
    """

    def __init__(self, settings: Settings, files: Sequence[Path], family: Family, notes: BoardNotes) -> None:
        self._settings = settings
        self._files = files
        self._family = family
        self._notes = notes
        self._stamps: dict[Path, Stamp | None] = {}
        self._seen: dict[Path, Stamp | None] = {}
        self._is_due = False
        self._again_at = float("inf")
        self._told: frozenset[str] = frozenset()
        self._made: frozenset[str] = frozenset()
        self._breaks: list[Break] = []
        self._asked = self._breaks
        self._applying: tuple[Child, Connection] | None = None

    @property
    def waited_for(self) -> list[Connection]:
        """What is worth a look when it has something to say."""
        return [self._applying[1]] if self._applying is not None else []

    def renew(self, breaks: Sequence[Break] | None) -> None:
        """Apply them with the next look; `breaks` is what new definitions may break, None: they are as before."""
        self._is_due = bool(self._files)
        if breaks is not None:
            self._note_breaks(breaks)

    def look(self) -> None:
        """Take in what became of the files, and apply them if there is a reason."""
        if self._applying is not None and not self._has_ended(*self._applying):
            return
        now = {file: stamp_of(file) for file in self._files}
        is_at_rest, self._seen = now == self._seen, now  # a save takes a while
        saved = [file for file in self._files if now[file] != self._stamps.get(file)]
        if self._stamps and saved:
            if not is_at_rest:
                return
            log.info("changed: %s", ", ".join(map(str, saved)))
        elif not (self._is_due or time.monotonic() > self._again_at):
            return
        is_applied = bool(self._is_due or saved or self._told)
        forced = saved if self._stamps else []
        self._stamps, self._is_due, self._again_at = now, False, float("inf")
        self._asked = self._breaks
        told, telling = Pipe(duplex=False)
        files = self._files if is_applied else []
        child = self._family.fork("objects", lambda: self._apply(files, forced, telling))
        telling.close()
        self._applying = child, told

    def _has_ended(self, child: Child, told: Connection) -> bool:
        """Tell of what came out, if it has."""
        if not told.poll():
            return False
        try:
            applied = told.recv()
        except EOFError:  # it was asked to end, or what ended it is on stderr
            applied = None
        told.close()
        child.join()
        self._applying = None
        if not isinstance(applied, AppliedFiles):
            return True
        self._made |= frozenset(applied.there)
        said = frozenset((*applied.refused, *applied.kept))
        for line in applied.refused:
            if line not in self._told:
                log.error("%s", line)
        for line in applied.kept:
            if line not in self._told:
                log.info("%s", line)
        self._told = said
        self._notes.put("objects", applied.refused)
        if applied.refused:
            self._again_at = time.monotonic() + _AGAIN_SECONDS
        if self._asked is self._breaks:  # else there are others now
            self._note_breaks(applied.breaks)
        return True

    def _note_breaks(self, breaks: Sequence[Break]) -> None:
        self._breaks = list(breaks)
        self._notes.put("definitions", [f"objects from before may not fit: {each.line}" for each in breaks])
        if breaks:
            self._again_at = time.monotonic() + _AGAIN_SECONDS

    def _apply(self, files: Sequence[Path], forced: Sequence[Path], telling: Connection) -> None:
        async def work() -> None:
            async with await connect_cluster(self._settings) as client:
                applied = await _applied(client, files, forced, self._made)
                breaks = await still_there(client, self._breaks)
            telling.send(replace(applied, breaks=breaks))

        execute(self._settings, lambda: until_gone(self._family, work()), is_part=True)


async def _applied(
    client: KubeClient, files: Sequence[Path], forced: Sequence[Path], made: Collection[str]
) -> AppliedFiles:
    """Apply what the files say, definitions first; in files that are forced, against what others have set or deleted.

    `made` are paths of objects that were there before.
    """
    applied = AppliedFiles()
    found: list[tuple[Path, dict[str, Any]]] = []
    unserved: dict[str, list[Path]] = {}
    """Files with objects of a kind that is not served, one for each object."""
    for file in files:
        for each in _read(file):
            if isinstance(each, ConfigurationError):
                applied.refused.append(f"objects cannot be read from {each}; {_mend(file)}")
            else:
                found.append((file, each))
    for file, manifest in sorted(found, key=lambda each: not _is_definition(each[1])):
        try:
            path = await _path(client, manifest)
            if path is None:
                unserved.setdefault(f"{manifest['kind']} in version {manifest['apiVersion']}", []).append(file)
                continue
            before = await _version(client, path)
            if not before and path in made and file not in forced:
                applied.kept.append(f"{_named(manifest)} stays deleted; save {file} to create it again")
                continue
            if await apply(client, path, manifest, is_forced=file in forced) != before:
                log.info("%s %s", "changed" if before else "created", _named(manifest))
            applied.there.append(path)
            if _is_definition(manifest):
                await until_defined(client, manifest)
        except ApiError as error:
            if error.status == _CONFLICT and file not in forced:
                kept = f"{_named(manifest)} stays as others have set it ({error.message}); save {file} to"
                applied.kept.append(f"{kept} apply that all the same")
            else:
                applied.refused.extend(f"{_named(manifest)}: {line}; {_mend(file)}" for line in _reasons(error))
        except LevelogError as error:
            applied.refused.append(f"{_named(manifest)}: {error}; {_mend(file)}")
    for kind, places in unserved.items():
        count = f"are {len(places)} objects" if len(places) > 1 else "is an object"
        inside = ", ".join(map(str, dict.fromkeys(places)))
        applied.refused.append(f"the cluster does not serve {kind}, of which there {count} in {inside}")
    return applied


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
    try:
        return (await client.request("GET", path)).decode(StoredVersion).metadata.resource_version
    except ApiError as error:
        if error.status == 404:
            return ""
        raise


def _reasons(error: ApiError) -> Iterator[str]:
    """The API's complaint, field by field if it names fields."""
    fields = [f"{cause.field}: {cause.message}" for cause in error.causes if cause.field]
    yield from fields or [error.message]


def _named(manifest: dict[str, Any]) -> str:
    metadata = manifest.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return f"{manifest.get('kind') or 'object'} {name}".strip()


def _read(file: Path) -> Iterator[dict[str, Any] | ConfigurationError]:
    try:
        yield from each_manifest(file)
    except ConfigurationError as error:
        yield error
