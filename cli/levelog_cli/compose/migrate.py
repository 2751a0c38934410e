"""Migrating a database on request."""

import sys

from levelog_cli.compose.databases import database_url
from levelog_cli.data_dir import DataDir
from levelog_cli.settings import Settings
from levelog_migrations import head, upgrade


async def migrate_database(settings: Settings) -> None:
    """Bring the database to the newest revision and say so.

    Raises ConfigurationError if it is the embedded one and in use.
    """
    if settings.database_url:
        await upgrade(settings.database_url)
    else:
        with DataDir(settings.data_dir).claim():
            await upgrade(database_url(settings))
    sys.stdout.write(f"the database is at revision {head()}\n")
