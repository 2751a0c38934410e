"""The database of a command: which one, and whether it is fit for this code."""

from levelog_cli.servers.data_dir import DataDir
from levelog_cli.settings import Settings
from levelog_migrations import check, upgrade
from levelog_store.connect.database import Database


def database_url(settings: Settings) -> str:
    """URL of the database that was given, else of the SQLite file in the data directory."""
    return settings.database_url or DataDir(settings.data_dir).database_url


async def open_to_run(url: str, *, is_own: bool) -> Database:
    """Open a database for the processes of an application.

    One that levelog made for itself is migrated; of any other the revision is checked. Raises MigrationRequired.
    """
    await (upgrade(url) if is_own else check(url))
    return await Database.open(url)


async def open_beside(settings: Settings) -> Database:
    """Open a database for a short write beside whatever runs on it. Raises as `open_to_read` does."""
    url = database_url(settings)
    await check(url)
    return await Database.open(url, beside=True)


async def open_to_read(settings: Settings) -> Database:
    """Open a database beside whatever runs on it. Raises MigrationRequired; ConfigurationError if it is not there."""
    url = database_url(settings)
    await check(url)
    return await Database.open(url, read_only=True)
