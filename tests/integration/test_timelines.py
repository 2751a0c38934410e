"""A PostgreSQL pair of which both work as primaries: who is on the older timeline stops."""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from sqlalchemy import text

from levelog_base.errors import Unavailable
from levelog_base.wire.objects import Application
from levelog_log.leases import Lease
from levelog_log.stream import LogStream
from levelog_log.timelinemark import TimelineMark
from levelog_store.connect.database import Database
from rigs.logs import new_log
from rigs.nats import NatsServer
from rigs.postgres import PostgresServer
from rigs.processing import Processing
from rigs.tcpproxy import TcpProxy
from rigs.waiting import until
from rigs.webs import receipt

APPLICATION = Application("webs")


class Pair:
    """A primary, its standby, and a log."""

    def __init__(self, old: PostgresServer, new: PostgresServer, stream: LogStream) -> None:
        self.old = old
        self.new = new
        self.stream = stream

    @asynccontextmanager
    async def worker(self, *servers: PostgresServer) -> AsyncGenerator[Database]:
        """The database of a process whose URL names these hosts."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
        async with await Database.open(f"postgresql://postgres@{hosts}/postgres") as database:
            mark = TimelineMark(self.stream, APPLICATION, holder=f"p-{secrets.token_hex(2)}")
            async with mark.kept(lambda: database.timeline, database.require):
                yield database


@pytest.fixture
async def pair(private_postgres: PostgresServer, nats_server: NatsServer) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        standby = await stack.enter_async_context(PostgresServer(standby_of=private_postgres.port))
        stream = await stack.enter_async_context(new_log(nats_server))
        await Lease(stream, APPLICATION, "ingest", holder="ingest").take()
        yield Pair(private_postgres, standby, stream)


async def port(database: Database) -> int:
    async with database.transaction() as connection:
        return int(await connection.scalar(text("SELECT current_setting('port')")))


async def works_at(database: Database, wanted: int) -> None:
    """Wait until it works on the server that was promoted."""
    await until(lambda: port(database), f"work at {wanted}", accept=lambda at: at == wanted, despite=Unavailable)


async def test_who_is_on_the_older_timeline_stops(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    async with pair.worker(pair.old) as on_old:
        assert await port(on_old) == pair.old.port
        await pair.new.execute("SELECT pg_promote()")
        async with pair.worker(pair.new) as on_new:
            assert await port(on_new) == pair.new.port

            async def is_refused() -> str:
                try:
                    await port(on_old)
                except Unavailable as error:
                    return str(error)
                return ""

            await until(is_refused, "the end of work on the old primary")
            assert "works on timeline 2" in caplog.text
            assert "timeline 1 of system" in await is_refused()
            assert await port(on_new) == pair.new.port
    with pytest.raises(Unavailable, match=r"timeline 1 of system.*timeline 2 of system"):
        async with pair.worker(pair.old) as late:  # the mark lasts as long as a lease
            await port(late)


async def test_who_can_reach_the_new_primary_goes_on_there(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with pair.worker(pair.old, pair.new) as both:
        assert await port(both) == pair.old.port
        await pair.new.execute("SELECT pg_promote()")
        async with pair.worker(pair.new) as on_new:
            assert await port(on_new) == pair.new.port
            await works_at(both, pair.new.port)


async def test_another_database_is_refused_while_one_is_worked_on(pair: Pair, postgres_url: str) -> None:
    async with pair.worker(pair.old), await Database.open(postgres_url) as other:
        mark = TimelineMark(pair.stream, APPLICATION, holder="other")
        async with mark.kept(lambda: other.timeline, other.require):
            with pytest.raises(Unavailable, match="and timeline 1 of system"):
                await port(other)


async def test_decisions_that_a_promotion_lost_are_told(
    private_postgres: PostgresServer, nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncExitStack() as stack:
        replication = await stack.enter_async_context(TcpProxy(private_postgres.port))
        copied = await asyncio.to_thread(PostgresServer, standby_of=replication.port)  # this loop runs the proxy
        standby = await stack.enter_async_context(copied)
        hosts = f"127.0.0.1:{private_postgres.port},127.0.0.1:{standby.port}"
        processing = Processing(nats_server.url, f"postgresql://postgres@{hosts}/postgres")
        await stack.enter_async_context(processing)

        async def is_replayed() -> bool:
            async with processing.database.reading() as connection:
                asked = text("SELECT bool_and(replay_lsn = pg_current_wal_lsn()) FROM pg_stat_replication")
                return bool(await connection.scalar(asked))

        await until(is_replayed, "a standby that has everything")
        replication.refuse()
        replication.cut("reset")
        row = await processing.first_write()
        await processing.folded(await processing.tell(receipt(row)))
        private_postgres.kill()
        await standby.execute("SELECT pg_promote()")
        await until(lambda: "has lost the decisions on 1 level" in caplog.text, "the decision that was lost")
        assert f"{row['view']} of {row['parent']} (round 1)" in caplog.text
        assert "a standby was promoted, which may lack the newest commits" in caplog.text
