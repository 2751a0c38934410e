"""PostgreSQL as others run it: with their defaults, behind a pooler, as a standby, shared with other programs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from levelog_base.errors import ConfigurationError, Unavailable
from levelog_migrations import upgrade
from levelog_store.connect.database import Database
from levelog_store.connect.drivererrors import translate_refusal
from levelog_store.connect.locations import locate
from levelog_store.look.sqlviews import IndexView, JsonColumn, replace_views
from rigs.ports import free_port
from rigs.postgres import PostgresDatabases, PostgresServer, plain, skip_before
from rigs.waiting import until

FORGETFUL = (
    "CREATE FUNCTION forget() RETURNS event_trigger LANGUAGE plpgsql AS "
    "$$ BEGIN PERFORM set_config('idle_in_transaction_session_timeout', '0', false); END $$",
    "CREATE EVENT TRIGGER forgetful ON login EXECUTE FUNCTION forget()",
)


async def shown(database: Database, *names: str) -> list[list[str]]:
    """Settings in a snapshot, a transaction that waits for the disk, and one that does not."""
    found: list[list[str]] = []
    for opened in (database.reading(), database.transaction(), database.transaction(durable=False)):
        async with opened as connection:
            found.append([str(await connection.scalar(text(f"SHOW {name}"))) for name in names])
    return found


@asynccontextmanager
async def default(postgres: PostgresDatabases, url: str, setting: str) -> AsyncGenerator[None]:
    """A default of the database for sessions that begin meanwhile."""
    name = make_url(url).database
    await postgres.execute(f'ALTER DATABASE "{name}" SET {setting}')
    try:
        yield
    finally:
        await postgres.execute(f'ALTER DATABASE "{name}" RESET ALL')


@pytest.mark.parametrize("level", ["read uncommitted", "read committed", "repeatable read", "serializable"])
async def test_transactions_are_isolated_as_they_have_to_be_whatever_the_default(
    postgres: PostgresDatabases, postgres_url: str, level: str
) -> None:
    async with (
        default(postgres, postgres_url, f"default_transaction_isolation = '{level}'"),
        await Database.open(postgres_url) as database,
    ):
        read, *written = await shown(database, "transaction_isolation", "transaction_read_only")
    assert read == ["repeatable read", "on"]
    assert written == [["read committed", "off"]] * 2


async def test_a_server_that_becomes_writable_elsewhere_is_found_by_a_new_connection(
    postgres: PostgresDatabases, postgres_url: str
) -> None:
    """As where a name leads to the old primary, a standby now, and then to the new one."""

    async def write() -> None:
        async with database.transaction() as connection:
            await connection.execute(text("DELETE FROM wakeups"))

    async with default(postgres, postgres_url, "default_transaction_read_only = on"):
        database = await Database.open(postgres_url)
        with pytest.raises(Unavailable, match="read-only"):
            await write()
    async with database:
        await write()


async def test_who_writes_does_not_read_from_a_standby_either(private_postgres: PostgresServer) -> None:
    async with private_postgres as server, server.database() as url:
        await upgrade(url)
        server.kill()
        (server.folder / "data/standby.signal").touch()
        await server.start()
        async with await Database.open(url, read_only=True) as database, database.reading() as connection:
            assert await connection.scalar(text("SELECT pg_is_in_recovery()"))
        with pytest.raises(Unavailable, match="no host of the URL is a primary"):
            await Database.open(url)
        await server.execute("SELECT pg_promote()")

        opened = await until(lambda: Database.open(url), "a server that is a primary", despite=Unavailable)
        await opened.close()


@pytest.mark.parametrize(
    "form", ["{user}@127.0.0.1:{dead},{host}/", "{user}@/{database}?host={host}&host=127.0.0.1:{dead}"]
)
async def test_of_several_hosts_the_one_that_answers_is_taken(postgres_url: str, form: str) -> None:
    url = make_url(postgres_url)
    user = f"{url.username}:{url.password}" if url.password else url.username
    place = form.format(user=user, dead=free_port(), host=f"{url.host}:{url.port}", database=url.database)
    place += f"{url.database}?target_session_attrs=read-write" if place.endswith("/") else ""
    async with await Database.open(f"postgresql://{place}") as database:
        assert await shown(database, "application_name") == [[f"levelog {database.token}"]] * 3


async def test_idle_connections_are_kept_alive(shared: Database) -> None:
    assert await shown(shared, "tcp_keepalives_idle") == [["60"]] * 3


async def test_a_database_that_cannot_hold_all_text_is_refused(postgres: PostgresDatabases) -> None:
    locale = "LC_COLLATE 'C' LC_CTYPE 'C'"
    await postgres.execute(f"CREATE DATABASE of_bytes TEMPLATE template0 ENCODING 'SQL_ASCII' {locale}")
    try:
        with pytest.raises(ConfigurationError, match=r"ENCODING 'UTF8'$"):
            await Database.open(postgres.url_of("of_bytes"))
    finally:
        await postgres.drop_database("of_bytes")


async def test_a_server_that_does_not_know_a_setting_is_too_old(postgres_url: str) -> None:
    with pytest.raises(asyncpg.UndefinedObjectError) as refused:
        await asyncpg.connect(plain(postgres_url), server_settings={"plan_cache_mode_of_12": "on"})
    error = translate_refusal(locate(postgres_url), refused.value)
    assert isinstance(error, ConfigurationError)
    assert str(error).endswith("levelog needs PostgreSQL 12 or newer")


async def test_a_table_of_another_program_is_named(empty_postgres_url: str) -> None:
    async with await Database.open(empty_postgres_url) as database, database.transaction() as connection:
        await connection.execute(text("CREATE TABLE objects (name text)"))
    with pytest.raises(ConfigurationError, match=r"another schema, database.*relation \"objects\" already exists"):
        await upgrade(empty_postgres_url)


async def test_sessions_that_do_not_keep_what_they_are_asked_for_are_refused(postgres_url: str) -> None:
    """As behind PgBouncer with `ignore_startup_parameters`."""
    async with await Database.open(postgres_url) as database:
        await skip_before(17, database)  # the first with triggers on login
        async with database.transaction() as connection:
            for statement in FORGETFUL:
                await connection.execute(text(statement))
    with pytest.raises(ConfigurationError, match=r"does not keep idle_in_transaction_session_timeout=15s.*pooler"):
        await Database.open(postgres_url)


async def sql_views_of(database: Database, *, ran: str = "") -> list[str]:
    """Where the SQL views of an application are whose code has one index; `ran` goes before."""
    number = (JsonColumn("", "integer", ()),)
    async with database.transaction() as connection:
        if ran:
            await connection.execute(text(ran))
    assert await replace_views(database, "webs", [IndexView("numbers", "webs/numbers", number, number)])
    async with database.reading() as connection:
        return [*await connection.scalars(text("SELECT viewname FROM pg_views WHERE schemaname = 'webs' ORDER BY 1"))]


async def test_applications_of_one_name_in_two_schemas_do_not_get_each_others_sql_views(
    empty_postgres_url: str,
) -> None:
    async with await Database.open(empty_postgres_url) as database, database.transaction() as connection:
        for statement in ("CREATE SCHEMA one", "CREATE SCHEMA other"):
            await connection.execute(text(statement))
    for schema in ("one", "other"):
        await upgrade(f"{empty_postgres_url}?search_path={schema}")
    async with await Database.open(f"{empty_postgres_url}?search_path=one") as one:
        assert await sql_views_of(one) == ["inputs", "numbers"]
    async with await Database.open(f"{empty_postgres_url}?search_path=other") as other:
        with pytest.raises(ConfigurationError, match="another schema, database or --application"):
            await sql_views_of(other)
        assert await sql_views_of(other, ran="DROP SCHEMA one CASCADE") == ["inputs", "numbers"]


async def test_a_view_of_somebody_else_in_the_schema_of_an_application_stays(postgres_url: str) -> None:
    theirs = "CREATE SCHEMA webs CREATE VIEW theirs AS SELECT 1 AS one"
    async with await Database.open(postgres_url) as database:
        assert await sql_views_of(database, ran=theirs) == ["inputs", "numbers", "theirs"]
        assert await sql_views_of(database, ran="COMMENT ON SCHEMA webs IS 'ours'") == ["inputs", "numbers", "theirs"]
