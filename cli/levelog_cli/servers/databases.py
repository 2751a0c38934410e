"""The database of a command: which one, whether it is fit for this code, and the SQL views in it."""

import logging
from collections.abc import Sequence
from pathlib import Path

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import Application
from levelog_cli.loading import LoadedApplication, load_application
from levelog_cli.printing.bars import Bars
from levelog_cli.printing.lines import print_line
from levelog_cli.servers.data_dir import DataDir
from levelog_cli.settings import Settings
from levelog_migrations import check, head, upgrade
from levelog_processors.sqlviews import sql_views
from levelog_store.connect.database import Database
from levelog_store.look.sqlviews import replace_views
from levelog_store.owners.scopes import find_scopes

log = logging.getLogger(__name__)


def has_database(settings: Settings) -> bool:
    """Whether one is given, or the data directory has one. Raises ConfigurationError where nobody may look."""
    data = DataDir(settings.data_dir)
    return bool(settings.database_url) or data.has(data.database)


def database_url(settings: Settings) -> str:
    """URL of the database that was given, else of the SQLite file in the data directory."""
    return settings.database_url or DataDir(settings.data_dir).database_url


async def open_to_run(url: str, bars: Bars, *, is_own: bool) -> Database:
    """Open a database for the processes of an application.

    One that levelog made for itself is migrated; of any other the revision is checked. Raises MigrationRequired.
    """
    await (_upgrade(url, bars) if is_own else check(url))
    return await Database.open(url)


async def _upgrade(url: str, bars: Bars) -> None:
    with bars.meanwhile("migrate") as tell:
        await upgrade(url, on_revision=tell)


async def open_beside(settings: Settings) -> Database:
    """Open a database for a short write beside whatever runs on it. Raises as `open_to_read` does."""
    url = _url_of_existing(settings)
    await check(url)
    return await Database.open(url, beside=True)


async def open_to_read(settings: Settings) -> Database:
    """Open a database beside whatever runs on it. Raises MigrationRequired; ConfigurationError if it is not there."""
    url = _url_of_existing(settings)
    await check(url)
    return await Database.open(url, read_only=True)


def _url_of_existing(settings: Settings) -> str:
    if not has_database(settings):
        raise ConfigurationError(
            f"there is no database in {settings.data_dir}: give --database-url, or the --data-dir that `levelog run` "
            "used"
        )
    return database_url(settings)


async def make_views(database: Database, application: LoadedApplication) -> None:
    """Make the SQL views of the loaded operators; a user who may not make them says so and goes on without."""
    if not await replace_views(database, application.name, sql_views(application.program)):
        log.warning(
            "the SQL views of application %s are not those of this code, and this user has no right to make them: "
            "run `levelog migrate FILE` as the owner of the tables",
            application.name,
        )


async def refuse_company(database: Database, application: Application) -> None:
    """Refuse to bring a new application into a PostgreSQL database that holds others: each could use the rights of all.

    One that is there already goes on, so that a newcomer stops nobody; the doctor tells of it. Raises
    ConfigurationError.
    """
    if not database.is_shared:
        return  # a file of one process, with the rights of its user
    async with database.reading() as connection:
        held = {scope.application for scope in await find_scopes(connection)}
    if held and application not in held:
        raise ConfigurationError(
            f"database {database.name} holds application {', '.join(sorted(held))}, and who may write rows of one "
            f"application may write those of all: give {application} a database of its own, or, if they trust each "
            "other, --shared-database"
        )


async def migrate_database(settings: Settings, files: Sequence[Path]) -> None:
    """Bring the database to the newest revision, make the SQL views of the operators in the files, and say so.

    Raises ConfigurationError if it is the embedded one and in use, if the user may not make SQL views, and as
    `load_application` does.
    """
    if settings.database_url:
        await _migrate(settings, files)
    else:
        with DataDir(settings.data_dir).claim():
            await _migrate(settings, files)


async def _migrate(settings: Settings, files: Sequence[Path]) -> None:
    application = load_application(settings, files) if files else None
    url = database_url(settings)
    await _upgrade(url, Bars(settings.log_format))
    print_line(f"the database is at revision {head()}")
    if application is None:
        return
    async with await Database.open(url) as database:
        if not await replace_views(database, application.name, sql_views(application.program)):
            raise ConfigurationError(
                f"the user of database {database.name} may not make the SQL views of application {application.name}: "
                f"give it the right to create schemas, or the schema {application.name}"
            )
    print_line(f"the SQL views of application {application.name} are made")
