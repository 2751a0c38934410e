"""A PostgreSQL pair, each behind a proxy: a host that hangs is one that is away."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from levelog_base.errors import Unavailable
from levelog_store.connect.database import Database
from rigs.postgres import PostgresServer
from rigs.tcpproxy import TcpProxy
from rigs.waiting import until


class Pair:
    """A primary and its standby, each behind a proxy; `url` names both."""

    def __init__(self, primary: PostgresServer, standby: PostgresServer, fronts: tuple[TcpProxy, TcpProxy]) -> None:
        self.primary = primary
        self.standby = standby
        self.front, self.other_front = fronts
        hosts = ",".join(f"127.0.0.1:{front.port}" for front in fronts)
        self.url = f"postgresql://postgres@{hosts}/postgres"

    async def fail_over(self) -> None:
        """Let the primary hang, and promote the standby."""
        self.front.pause()
        await self.standby.execute("SELECT pg_promote()")


@pytest.fixture
async def pair(private_postgres: PostgresServer) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        standby = await stack.enter_async_context(PostgresServer(standby_of=private_postgres.port))
        fronts = [await stack.enter_async_context(TcpProxy(server.port)) for server in (private_postgres, standby)]
        yield Pair(private_postgres, standby, (fronts[0], fronts[1]))


async def server_port(database: Database) -> int:
    async with database.transaction() as connection:
        return int(await connection.scalar(text("SELECT current_setting('port')")))


async def test_a_process_starts_with_the_host_that_answers(pair: Pair) -> None:
    await pair.fail_over()
    async with await Database.open(pair.url) as database:
        assert await server_port(database) == pair.standby.port


async def test_a_running_process_leaves_a_host_that_hangs(pair: Pair) -> None:
    told: list[str] = []
    async with await Database.open(pair.url) as database:
        assert await server_port(database) == pair.primary.port
        await pair.fail_over()

        async def is_elsewhere() -> bool:
            try:
                return await server_port(database) == pair.standby.port
            except Unavailable as error:
                told.append(str(error))
                return False

        await until(is_elsewhere, "the host that was promoted", seconds=15)
    assert "CancelledError" not in " ".join(told)


async def test_a_statement_that_takes_long_is_left_alone_while_its_host_answers(pair: Pair) -> None:
    async with await Database.open(pair.url) as database, database.reading() as connection:
        before = pair.front.accepted
        await connection.execute(text("SELECT pg_sleep(7)"))
    assert pair.front.accepted > before  # its host was asked meanwhile


async def test_hosts_that_are_all_away_are_each_named(pair: Pair) -> None:
    pair.front.pause()
    with pytest.raises(Unavailable, match=f"{pair.front.port}: no answer.*{pair.other_front.port}: it is no primary"):
        await Database.open(pair.url)


async def test_a_single_host_that_hangs_is_away_and_no_mistake(private_postgres: PostgresServer) -> None:
    async with TcpProxy(private_postgres.port) as front:
        url = make_url(private_postgres.url_of("postgres")).set(port=front.port)
        front.pause()
        with pytest.raises(Unavailable):
            await Database.open(url.render_as_string(hide_password=False))
