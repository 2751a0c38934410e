"""Bringing a database to the revision that this code needs, and telling which one it is at."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, select

from levelog.errors import MigrationRequired
from levelog_store.database import Database

_LOCK: Final = 0x6C65_7665_6C6F_6701  # "levelog" and a one: the key of an advisory lock of PostgreSQL, 64 bits


def head() -> str:
    """The revision that this code needs."""
    revision = _scripts().get_current_head()
    if revision is None:
        raise LookupError(f"no revisions in {_scripts().dir}")
    return revision


async def current(url: str) -> str | None:
    """The revision that the database is at; None if it was never migrated.

    Raises ConfigurationError or Unavailable if it cannot be opened; a SQLite file is not made.
    """
    async with await Database.open(url, read_only=True) as database, database.reading() as connection:
        return await connection.run_sync(_revision)


async def check(url: str) -> None:
    """Raise MigrationRequired unless the database is at the revision that this code needs."""
    async with await Database.open(url, read_only=True) as database, database.reading() as connection:
        found = await connection.run_sync(_revision)
        _refuse_newer(database.name, found)
        if found != head():
            state = f"is at revision {found}" if found else "has no tables of levelog yet"
            raise MigrationRequired(
                f"database {database.name} {state}, this code needs revision {head()}: run `levelog migrate`"
            )


async def upgrade(url: str) -> None:
    """Bring the database to `head`, in one transaction; nothing if it is there already.

    Any number of processes may call it at once: one does it, the others wait for that. Raises MigrationRequired, and
    changes nothing, if the database is at a revision that this code does not know.
    """
    await _run(url, lambda config: command.upgrade(config, "head"))


async def downgrade(url: str, revision: str) -> None:
    """Bring the database back to an older revision, or to `base`: no tables at all."""
    await _run(url, lambda config: command.downgrade(config, revision))


async def _run(url: str, step: Callable[[Config], None]) -> None:
    async with await Database.open(url, statement_time=None) as database, database.transaction() as connection:
        if database.is_shared:
            await connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        _refuse_newer(database.name, await connection.run_sync(_revision))
        await connection.run_sync(_apply, step)


def _apply(connection: Connection, step: Callable[[Config], None]) -> None:
    config = _config()
    config.attributes["connection"] = connection
    step(config)


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _refuse_newer(name: str, found: str | None) -> None:
    known = {script.revision for script in _scripts().walk_revisions()}
    if found is not None and found not in known:
        raise MigrationRequired(
            f"database {name} is at revision {found}, which this code, at {head()}, does not know: "
            "it was migrated by newer code, run that"
        )


def _config() -> Config:
    config = Config()
    # alembic reads the folder through configparser, to which % means something
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config


@cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())
