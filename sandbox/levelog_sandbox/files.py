"""Objects from YAML files, created in a sandbox as `kubectl create -f` would."""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from levelog.errors import ConfigurationError
from levelog_sandbox.api.refusals import StatusError
from levelog_sandbox.controllers import definitions
from levelog_sandbox.objects.revisions import Change, Collection
from levelog_sandbox.sandbox import Sandbox

Json = dict[str, Any]


async def create_from_files(sandbox: Sandbox, files: Iterable[Path]) -> None:
    """Create every object of the files that is not there, in their order.

    A definition's resources are served before what follows it is created. Raises ConfigurationError, naming file
    and object, for what cannot be read or is refused.
    """
    for file in files:
        for manifest in _manifests(file):
            name = (manifest.get("metadata") or {}).get("name", "without a name")
            try:
                sandbox.user.create(manifest)
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise ConfigurationError(f"{file}: {manifest.get('kind', 'object')} {name}: {error}") from error
            if manifest["kind"] == "CustomResourceDefinition":
                await _established(sandbox, name)


async def _established(sandbox: Sandbox, name: str) -> None:
    has_changed = asyncio.Event()

    def note(collection: Collection, _: Change) -> None:
        if collection.storage == definitions.STORAGE:
            has_changed.set()

    listeners = sandbox.store.listeners
    listeners.append(note)
    try:
        while not definitions.is_established(sandbox.user.get(definitions.STORAGE, name)):
            has_changed.clear()
            await has_changed.wait()
    finally:
        listeners.remove(note)


def _manifests(file: Path) -> Iterator[Json]:
    import yaml  # noqa: PLC0415 - slow to load, and most sandboxes are given no files

    try:
        documents: list[Any] = list(yaml.safe_load_all(file.read_bytes()))
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{file} is not YAML: {' '.join(str(error).split())}") from error
    for document in documents:
        if document is None:  # nothing but comments
            continue
        if not isinstance(document, dict):
            raise ConfigurationError(f"{file} holds something that is not a manifest")
        yield document
