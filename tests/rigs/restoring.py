"""A log that is restored from a backup and written on, so that it ends after the old one and is another."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from levelog_log.stream import LogStream
from rigs.nats import NatsServer


async def write_two_histories(
    server: NatsServer, stream: LogStream, folder: Path, write: Callable[[int, int], Awaitable[None]]
) -> None:
    """Write 20 records, and aside the first ten of them with 20 others, which `restore` puts in their place.

    `write` writes so many records, of objects at this version.
    """
    await write(10, 1)
    server.kill()
    shutil.copytree(server.store_dir, folder / "backup")
    await server.start()
    await stream.connection.wait_connected()
    await write(20, 2)
    server.kill()
    shutil.move(server.store_dir, folder / "grown")
    shutil.move(folder / "backup", server.store_dir)
    await server.start()
    await stream.connection.wait_connected()
    await write(10, 3)


async def restore(server: NatsServer, stream: LogStream, folder: Path) -> None:
    """Restart the server with the other history."""
    server.kill()
    shutil.rmtree(server.store_dir)
    shutil.move(folder / "grown", server.store_dir)
    await server.start()
    await stream.connection.wait_connected()
