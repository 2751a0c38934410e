"""A log that is restored from a backup and written on, so that it ends after the old one and is another."""

import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from levelog_log.stream import LogStream
from rigs.logs import publish_webs, restart
from rigs.nats import NatsServer


async def write_two_histories(
    server: NatsServer,
    stream: LogStream,
    folder: Path,
    write: Callable[[int, int], Awaitable[None]] | None = None,
) -> None:
    """Write 20 records, and aside the first ten of them with 20 others, which `restore` puts in their place.

    `write` writes so many records, of objects at this version: Webs, unless it is given.
    """
    write = write or partial(publish_webs, stream, batch=4)
    await write(10, 1)
    await restart(server, stream, lambda: shutil.copytree(server.store_dir, folder / "backup"))
    await write(20, 2)

    def set_aside() -> None:
        shutil.copytree(server.store_dir, folder / "grown")
        put_back(server, folder / "backup")

    await restart(server, stream, set_aside)
    await write(10, 3)


async def restore(server: NatsServer, stream: LogStream, folder: Path) -> None:
    """Restart the server with the other history."""
    await restart(server, stream, lambda: put_back(server, folder / "grown"))


def put_back(server: NatsServer, backup: Path) -> None:
    """Put a copy of its store in the place of that of a server that does not run."""
    shutil.rmtree(server.store_dir)
    shutil.copytree(backup, server.store_dir)
