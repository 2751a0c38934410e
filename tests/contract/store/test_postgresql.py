"""What only a server can do: refuse, disappear, take too long, find a deadlock."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import text, update
from sqlalchemy.engine import make_url

from levelog_base.errors import ConfigurationError, Unavailable
from levelog_store.connect import engines
from levelog_store.connect.database import Database
from levelog_store.dialects import upsert
from levelog_store.tables import key_versions
from rigs.ports import free_port
from rigs.postgres import PostgresDatabases, PostgresServer
from rigs.waiting import until


async def scalar(database: Database, statement: str) -> object:
    async with database.reading() as connection:
        return await connection.scalar(text(statement))


async def test_urls_of_people_work(postgres_url: str) -> None:
    tail = postgres_url.partition("://")[2]
    for scheme in ("postgresql", "postgres", "postgresql+asyncpg"):
        async with await Database.open(f"{scheme}://{tail}") as database:
            assert await scalar(database, "SELECT 1") == 1
            assert database.is_shared
            assert database.name.endswith(f"/{make_url(postgres_url).database}")


async def test_options_of_a_url_are_libpqs(postgres_url: str) -> None:
    async with await Database.open(
        f"{postgres_url}?sslmode=prefer&search_path=mine&options=-cwork_mem%3D7MB"
    ) as database:
        assert await scalar(database, "SHOW search_path") == "mine"
        assert await scalar(database, "SHOW work_mem") == "7MB"
        async with database.transaction() as connection:
            assert await connection.scalar(text("SHOW search_path")) == "mine"


@pytest.mark.parametrize("options", ["sslmode=sometimes", "no_such_setting=1"])
async def test_options_that_make_no_sense_are_refused(postgres_url: str, options: str) -> None:
    with pytest.raises(ConfigurationError, match=r"sslmode|no_such_setting"):
        await Database.open(f"{postgres_url}?{options}")


@pytest.mark.parametrize("option", ["sslmode", "ssl"])
async def test_a_server_that_does_not_encrypt_is_refused_when_it_has_to(postgres_url: str, option: str) -> None:
    with pytest.raises((ConfigurationError, Unavailable), match="SSL"):
        await Database.open(f"{postgres_url}?{option}=require")


async def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    url = f"postgresql://someone:s3cret@127.0.0.1:{free_port()}/levelog"
    with pytest.raises(Unavailable, match=r"^database 127\.0\.0\.1:\d+/levelog cannot be reached") as refused:
        await Database.open(url)
    assert "s3cret" not in str(refused.value)


async def test_a_host_that_is_not_known_is_named() -> None:
    with pytest.raises(Unavailable, match=r"nowhere\.invalid"):
        await Database.open("postgresql://nowhere.invalid/levelog")


async def test_a_database_that_is_not_there_is_named(postgres_url: str) -> None:
    url = make_url(postgres_url).set(database="absent").render_as_string(hide_password=False)
    with pytest.raises(ConfigurationError, match=r"/absent cannot be reached: the server has no such database"):
        await Database.open(url)


async def test_a_user_who_is_not_there_is_refused(postgres_url: str) -> None:
    url = make_url(postgres_url).set(username="stranger", password="s3cret").render_as_string(hide_password=False)
    with pytest.raises(ConfigurationError, match="refused") as refused:
        await Database.open(url)
    assert "s3cret" not in str(refused.value)


async def test_a_connection_that_breaks_is_unavailable_once(shared: Database) -> None:
    async def break_off() -> None:
        async with shared.transaction() as connection:
            await upsert(connection, key_versions, [{"scope": 1, "index": "i", "key": "k", "version": 1}])
            await connection.execute(text("SELECT 1"))  # with which it is sent
            async with shared.transaction() as other:
                killed = (
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE state = 'idle in transaction' AND datname = current_database()"
                )
                await other.execute(text(killed))
            await connection.execute(text("SELECT 1"))

    with pytest.raises(Unavailable, match="did not do as told"):
        await break_off()
    assert await scalar(shared, "SELECT count(*) FROM key_versions") == 0


async def test_of_all_connections_that_a_server_has_lost_one_is_told(private_postgres: PostgresServer) -> None:
    async with private_postgres as server, await Database.open(server.url_of("postgres")) as database:
        async with database.reading(), database.reading(), database.reading():  # three, which are kept
            pass
        server.kill()
        await server.start()
        with pytest.raises(Unavailable):
            await scalar(database, "SELECT 1")
        for _ in range(3):
            assert await scalar(database, "SELECT 1") == 1


async def test_a_server_that_starts_again_is_used_again(private_postgres: PostgresServer) -> None:
    async with private_postgres as server, await Database.open(server.url_of("postgres")) as database:
        assert await scalar(database, "SELECT 1") == 1
        server.kill()
        with pytest.raises(Unavailable):
            await scalar(database, "SELECT 1")
        await server.start()
        # each connection of the pool has to be found broken
        await until(lambda: scalar(database, "SELECT 1"), "a database that answers", despite=Unavailable)


async def test_a_statement_that_takes_too_long_is_unavailable_and_its_connection_not_used_again(
    shared_url: str,
) -> None:
    async with await Database.open(shared_url, statement_time=timedelta(seconds=2)) as database:
        with pytest.raises(Unavailable, match="in time"):
            await scalar(database, "SELECT pg_sleep(60)")
        assert await scalar(database, "SELECT 1") == 1


async def test_a_deadlock_is_unavailable_for_one_and_nothing_for_the_other(
    postgres: PostgresDatabases, postgres_template: str
) -> None:
    async with (
        postgres.database(template=postgres_template, deadlocks=1) as url,
        await Database.open(url) as shared,
    ):
        await cross_each_other(shared)


async def cross_each_other(shared: Database) -> None:
    rows = [{"scope": 1, "index": "i", "key": key, "version": 1} for key in "ab"]
    async with shared.transaction() as connection:
        await upsert(connection, key_versions, rows)
    meeting = asyncio.Barrier(2)

    async def cross(*keys: str) -> bool:
        try:
            async with shared.transaction() as connection:
                for key in keys:
                    await connection.execute(update(key_versions).where(key_versions.c.key == key).values(version=2))
                    if key == keys[0]:
                        await meeting.wait()
        except Unavailable as error:
            assert "deadlock" in str(error)  # noqa: PT017  (one of two, nobody knows which)
            return False
        return True

    assert sorted(await asyncio.gather(cross("a", "b"), cross("b", "a"))) == [False, True]


async def test_a_writer_that_stands_still_is_cut_off_and_a_reader_is_not(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "IDLE_SECONDS", 1)
    async with await Database.open(shared_url) as database:

        async def stand_still() -> None:
            async with database.transaction() as writer:
                pid = await writer.scalar(text("SELECT pg_backend_pid()"))
                left = f"SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}"
                await until(lambda: scalar(database, left), "the end of the session", accept=lambda found: found == 0)
                await writer.execute(text("SELECT 1"))

        async with database.reading() as reader:
            await reader.execute(text("SELECT 1"))
            with pytest.raises(Unavailable):
                await stand_still()
            assert await reader.scalar(text("SELECT 1")) == 1


async def test_commits_that_are_not_durable_say_so_to_the_server(shared: Database) -> None:
    for durable, setting in ((True, "on"), (False, "off"), (True, "on")):
        async with shared.transaction(durable=durable) as connection:
            assert await connection.scalar(text("SHOW synchronous_commit")) == setting
