"""Databases at the newest revision, as copies: running the migrations takes most of the time of a short test."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from levelog_migrations import upgrade
from rigs.postgres import PostgresDatabases

_SQLITE: Final = "sqlite:///"
_template: Final[list[bytes]] = []
"""The content of a migrated file, once there is one."""


async def migrate(url: str) -> None:
    """Bring a database to the newest revision; a SQLite file that is not there yet is copied."""
    if not _is_absent(url):
        await upgrade(url)
        return
    if not _template:
        with tempfile.TemporaryDirectory() as folder:
            template = f"{_SQLITE}{folder}/template.db"
            await upgrade(template)
            _template.append(_path(template).read_bytes())
    _path(url).write_bytes(_template[0])


def _path(url: str) -> Path:
    return Path(url.removeprefix(_SQLITE))


def _is_absent(url: str) -> bool:
    return url.startswith(_SQLITE) and not _path(url).exists()


def migrated_sqlite(folder: Path) -> str:
    """The URL of a new database; not for use inside an event loop."""
    url = f"{_SQLITE}{folder}/levelog.db"
    asyncio.run(migrate(url))
    return url


@asynccontextmanager
async def migrated_template(databases: PostgresDatabases) -> AsyncGenerator[str]:
    """The name of a database to make others from."""
    name = await databases.create_database()
    await upgrade(databases.url_of(name))
    try:
        yield name
    finally:
        await databases.drop_database(name)
