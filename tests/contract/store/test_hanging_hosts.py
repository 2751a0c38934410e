"""A PostgreSQL pair, each behind a proxy: a host that hangs is one that is away."""

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from levelog_base.errors import Unavailable
from levelog_store.connect.database import Database
from rigs.postgres import PostgresServer
from rigs.postgrespair import PostgresPair
from rigs.tcpproxy import TcpProxy
from rigs.waiting import until


async def fail_over(pair: PostgresPair) -> None:
    """Let the primary hang, and promote the standby."""
    pair.front.pause()
    await pair.promote()


async def server_port(database: Database) -> int:
    async with database.transaction() as connection:
        return int(await connection.scalar(text("SELECT current_setting('port')")))


async def test_a_process_starts_with_the_host_that_answers(postgres_pair: PostgresPair) -> None:
    await fail_over(postgres_pair)
    async with await Database.open(postgres_pair.url) as database:
        assert await server_port(database) == postgres_pair.primary.port


async def test_a_running_process_leaves_a_host_that_hangs(postgres_pair: PostgresPair) -> None:
    told: list[str] = []
    async with await Database.open(postgres_pair.url) as database:
        assert await server_port(database) == postgres_pair.primary.port
        await fail_over(postgres_pair)

        async def is_elsewhere() -> bool:
            try:
                return await server_port(database) == postgres_pair.primary.port
            except Unavailable as error:
                told.append(str(error))
                return False

        await until(is_elsewhere, "the host that was promoted", seconds=40)  # statements end after 60
    assert "CancelledError" not in " ".join(told)


async def test_a_statement_that_takes_long_is_left_alone_while_its_host_answers(postgres_pair: PostgresPair) -> None:
    async with await Database.open(postgres_pair.url) as database, database.reading() as connection:
        before = postgres_pair.front.accepted
        await connection.execute(text("SELECT pg_sleep(7)"))
    assert postgres_pair.front.accepted > before  # its host was asked meanwhile


async def test_hosts_that_are_all_away_are_each_named(postgres_pair: PostgresPair) -> None:
    postgres_pair.front.pause()
    away, other = (front.port for front in postgres_pair.fronts)
    with pytest.raises(Unavailable, match=f"{away}: no answer.*{other}: it is no primary"):
        await Database.open(postgres_pair.url)


async def test_a_single_host_that_hangs_is_away_and_no_mistake(private_postgres: PostgresServer) -> None:
    async with TcpProxy(private_postgres.port) as front:
        url = make_url(private_postgres.url_of("postgres")).set(port=front.port)
        front.pause()
        with pytest.raises(Unavailable):
            await Database.open(url.render_as_string(hide_password=False))
