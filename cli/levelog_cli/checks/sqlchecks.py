"""The database: whether it answers, is at this code's revision, and keeps what it commits."""

from collections.abc import AsyncIterator

from levelog.errors import LevelogError
from levelog_cli.checks.findings import Finding
from levelog_cli.servers.data_dir import DataDir
from levelog_cli.servers.databases import database_url
from levelog_cli.settings import Settings
from levelog_migrations import check, head
from levelog_store.connect.database import Database
from levelog_store.look.contact import read_unreadable
from levelog_store.look.overview import find_scopes, read_server_facts

_DATABASE = "database"


async def examine_database(settings: Settings) -> AsyncIterator[Finding]:
    """Look at the database that is given, else at the embedded one, which `levelog run` makes."""
    data = DataDir(settings.data_dir)
    if not settings.database_url and not data.database.exists():
        yield Finding.ok(_DATABASE, f"embedded: SQLite, made by `levelog run` in {data.shown}")
        return
    url = database_url(settings)
    try:
        async with await Database.open(url, read_only=True) as database:
            facts = await read_server_facts(database)
            yield Finding.ok(_DATABASE, f"{database.name}, {facts.version}")
            if not facts.is_durable:
                yield Finding.wrong(
                    _DATABASE, "loses what it committed when its machine fails: fsync is off", "fsync = on"
                )
        await check(url)
        yield Finding.ok(_DATABASE, f"is at revision {head()}")
        async with await Database.open(url, read_only=True) as database, database.reading() as connection:
            for scope in await find_scopes(connection):
                yield Finding.ok(_DATABASE, f"holds application {scope.application} on cluster {scope.cluster}")
                for record in await read_unreadable(connection, scope):
                    yield Finding.note(
                        "records",
                        f"{record.place}: a record cannot be read and is skipped, by application {scope.application}: "
                        f"{record.error}",
                        "change the object, so that the API sends it anew",
                    )
    except LevelogError as error:
        yield Finding.wrong(_DATABASE, error)
