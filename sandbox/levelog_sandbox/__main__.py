"""Run a sandbox as a server: `python -m levelog_sandbox --port 8001 --kubeconfig PATH`."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from levelog_base.errors import ConfigurationError
from levelog_sandbox.api.refusals import StatusError
from levelog_sandbox.controllers import definitions
from levelog_sandbox.objects.journal import Journal
from levelog_sandbox.objects.revisions import Change, Collection
from levelog_sandbox.sandbox import Sandbox

Json = dict[str, Any]


async def create_from_files(sandbox: Sandbox, files: Iterable[Path]) -> None:
    """Create every object of the files that is not there, in their order; a folder is its YAML files.

    Of a folder, definitions come first. A definition's resources are served before what follows it is created. Raises
    ConfigurationError, naming file and object, for what cannot be read or is refused.
    """
    for path in files:
        for file, manifest in _ordered(path) if path.is_dir() else _manifests(path):
            metadata = manifest.get("metadata")
            name = metadata.get("name", "without a name") if isinstance(metadata, dict) else "without a name"
            try:
                sandbox.user.create(manifest)
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise ConfigurationError(f"{file}: {manifest.get('kind', 'object')} {name}: {error}") from error
            if _is_definition(manifest):
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


def _is_definition(manifest: Json) -> bool:
    return manifest.get("kind") == "CustomResourceDefinition"


def _ordered(folder: Path) -> list[tuple[Path, Json]]:
    """The manifests of a folder's files, by name of file, definitions first."""
    files = sorted(file for file in folder.iterdir() if file.suffix in {".yaml", ".yml"})
    found = [each for file in files for each in _manifests(file)]
    return sorted(found, key=lambda each: not _is_definition(each[1]))


def _manifests(file: Path) -> Iterator[tuple[Path, Json]]:
    from levelog_base.wire.manifests import manifests_of  # noqa: PLC0415 - slow, and most sandboxes are given no files

    return ((file, manifest) for manifest in manifests_of(file))


async def serve(given: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM; it listens, and writes the kubeconfig, once the objects of the files are there."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    sandbox = Sandbox(host=given.host, port=given.port, pods_run=given.pods_run, names=given.name)
    with Journal(given.journal, sandbox.store) if given.journal is not None else nullcontext():
        await create_from_files(sandbox, given.create)
        async with sandbox:
            if given.kubeconfig is not None:
                sandbox.kubeconfig(given.kubeconfig)
            sys.stdout.write(f"{sandbox.url}\n")
            sys.stdout.flush()
            await stop.wait()


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(prog="python -m levelog_sandbox", description=__doc__)
    made.add_argument(
        "--host",
        default="127.0.0.1",
        help="where to listen; a name that others resolve, if they are to use the kubeconfig",
    )
    made.add_argument("--port", type=int, default=8001, help="0 takes a free one; the address is printed")
    made.add_argument("--kubeconfig", type=Path, help="write a kubeconfig for the sandbox here")
    made.add_argument(
        "--name", action="append", default=[], help="a name with dots under which it is reached too; may be repeated"
    )
    made.add_argument("--pods-run", action="store_true", help="pods are Running as soon as they are created")
    made.add_argument(
        "--create",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="create the objects of a YAML file, or of a folder of them, that are not there yet; may be repeated",
    )
    made.add_argument(
        "--journal", type=Path, metavar="FILE", help="keep the objects in this file, and start with those that it holds"
    )
    return made


def main() -> None:
    """Read the arguments and serve."""
    given = parser().parse_args()
    try:
        asyncio.run(serve(given))
    except (ConfigurationError, OSError) as error:  # OSError: the address is taken, the kubeconfig not writable
        sys.exit(f"levelog_sandbox: {error}")


if __name__ == "__main__":
    main()
