"""Brings a database to the revision of this code, and tells at which revision it is.

Alembic is loaded where there is something to apply: every command that looks at a database comes through here first.
"""

import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, column, func, inspect, select, table

from levelog_base.errors import MigrationRequired
from levelog_store.connect.database import Database

log = logging.getLogger(__name__)

_LOCK: Final = 0x6C65_7665_6C6F_6701  # "levelog" and a one: the key of an advisory lock of PostgreSQL, 64 bits
_FILE: Final = "revision_"
_APPLIED: Final = table("alembic_version", column("version_num"))


def head() -> str:
    """The revision that this code needs."""
    return known()[-1]


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


async def upgrade(url: str, *, on_revision: Callable[[int, int], None] | None = None) -> None:
    """Bring the database to `head`, in one transaction; nothing if it is there already.

    `on_revision` is told how many revisions are applied, of how many: before the first, and after each. Any number of
    processes may call it at once: one does it, the others wait for that. Raises MigrationRequired, and changes nothing,
    if the database is at a revision that this code does not know.
    """
    await _run(url, head(), on_revision)


async def downgrade(url: str, revision: str) -> None:
    """Bring the database back to an older revision, or to `base`: no tables at all."""
    await _run(url, revision)


async def _run(url: str, revision: str, on_revision: Callable[[int, int], None] | None = None) -> None:
    async with await Database.open(url, statement_time=None) as database, database.transaction() as connection:
        if database.is_shared:
            await connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        found = await connection.run_sync(_revision)
        _refuse_newer(database.name, found)
        if found != revision:
            from levelog_migrations.applying import apply

            steps = len(known()) - (known().index(found) + 1 if found is not None else 0)
            log.info("database %s goes from revision %s to %s", database.name, found or "none", revision)
            tell = None if on_revision is None else lambda done: on_revision(done, steps)
            await connection.run_sync(apply, revision, is_newer=revision == head(), tell=tell)


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_APPLIED.name):
        return None
    return connection.scalar(select(_APPLIED.c.version_num))


def _refuse_newer(name: str, found: str | None) -> None:
    if found is not None and found not in known():
        raise MigrationRequired(
            f"database {name} is at revision {found}, which this code, at {head()}, does not know: "
            "it was migrated by newer code, run that"
        )


@cache
def known() -> list[str]:
    """The revisions of this code, oldest first, by the names of their files."""
    return sorted(file.stem.removeprefix(_FILE) for file in Path(__file__).parent.glob(f"versions/{_FILE}*.py"))
