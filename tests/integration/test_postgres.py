import asyncio
import os
import signal
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from rigs.ports import is_listening
from rigs.postgres import PostgresDatabases, PostgresServer
from rigs.processes import ProcessEnded
from rigs.waiting import until

pytestmark = pytest.mark.long  # of a rig, which seldom changes


async def rows(url: str, *statements: str) -> list[tuple[object, ...]]:
    """Run statements in one transaction; the rows of the last one."""
    engine = create_async_engine(url)
    try:
        async with engine.begin() as connection:
            for statement in statements[:-1]:
                await connection.execute(text(statement))
            result = await connection.execute(text(statements[-1]))
            return [tuple(row) for row in result]
    finally:
        await engine.dispose()


async def test_each_test_has_an_empty_database(postgres: PostgresDatabases, empty_postgres_url: str) -> None:
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    assert await rows(empty_postgres_url, "CREATE TABLE once (n int)", tables) == [("once",)]
    async with postgres.database() as other:
        assert await rows(other, tables) == []


async def test_a_database_is_copied_from_a_template_and_dropped(postgres: PostgresDatabases) -> None:
    template = await postgres.create_database()
    try:
        await rows(
            postgres.url_of(template), "CREATE TABLE numbers (n int)", "INSERT INTO numbers VALUES (7) RETURNING n"
        )
        async with postgres.database(template=template) as url:
            assert await rows(url, "SELECT n FROM numbers") == [(7,)]
        with pytest.raises(DBAPIError, match="does not exist"):
            await rows(url, "SELECT 1")
    finally:
        await postgres.drop_database(template)


async def test_commits_outlive_a_killed_server(private_postgres: PostgresServer) -> None:
    server = private_postgres
    async with server.database() as url:
        await rows(url, "CREATE TABLE numbers (n int)", "INSERT INTO numbers VALUES (7) RETURNING n")
        server.kill()
        assert not is_listening(server.port)
        with pytest.raises(OSError, match=str(server.port)):
            await rows(url, "SELECT 1")

        await server.start()

        assert await rows(url, "SELECT n FROM numbers") == [(7,)]


async def test_a_server_starts_again_only_once_the_backends_of_the_killed_one_are_gone(
    private_postgres: PostgresServer,
) -> None:
    server = private_postgres
    async with server.database() as url:
        engine = create_async_engine(url)
        async with engine.connect() as connection:
            backend = int((await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one())
            os.kill(backend, signal.SIGSTOP)
            try:
                server.kill()
                starting = asyncio.create_task(server.start())

                async def is_refused() -> bool:
                    return server.process is not None and "is still in use" in server.process.log_tail()

                await until(is_refused, "a server that finds a backend of its predecessor")
                assert not starting.done()
            finally:
                os.kill(backend, signal.SIGCONT)
            await starting
            await connection.invalidate()
        await engine.dispose()
        assert await rows(url, "SELECT 1") == [(1,)]


async def test_a_durable_server_syncs_and_takes_settings() -> None:
    async with PostgresServer(is_durable=True, settings={"max_connections": "17"}) as server:
        url = server.url_of("postgres")
        shown = [await rows(url, f"SHOW {name}") for name in ("fsync", "full_page_writes", "max_connections")]
        assert shown == [[("on",)], [("on",)], [("17",)]]


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can hide a folder from another account")
async def test_programs_in_a_folder_that_only_the_superuser_may_enter_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rigs import postgres

    programs = postgres.programs_folder()
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    package = hidden / programs.parent.parent.name
    package.symlink_to(programs.parent.parent)
    package.with_suffix(".libs").symlink_to(programs.parent.parent.with_suffix(".libs"))
    monkeypatch.setattr(postgres, "programs_folder", lambda: package / programs.parent.name / programs.name)
    async with PostgresServer() as server:
        assert await rows(server.url_of("postgres"), "SELECT 1") == [(1,)]


async def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(ProcessEnded, match='unrecognized configuration parameter "no_such_thing"'):
        async with PostgresServer(settings={"no_such_thing": "1"}):
            pass


async def test_nothing_is_left_after_stop() -> None:
    async with PostgresServer() as server:
        assert server.process is not None
        pid = server.process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not is_listening(server.port)
    assert not server.folder.exists()


async def test_a_given_server_is_used_instead_of_a_started_one(
    postgres: PostgresDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rigs.postgres import URL_VARIABLE, given_databases

    monkeypatch.setenv(URL_VARIABLE, postgres.url_of("postgres").replace("+asyncpg", ""))
    given = given_databases()
    assert given is not None
    async with given.database() as url:
        assert url.startswith("postgresql+asyncpg://")
        assert await rows(url, "SELECT 1") == [(1,)]
