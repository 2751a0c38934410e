"""What the TCP proxy loses took effect, and what it keeps back did not: elsewhere both look alike."""

import asyncpg
import nats
import pytest
from nats.errors import ConnectionClosedError
from nats.errors import TimeoutError as NatsTimeoutError
from sqlalchemy.engine import make_url

from rigs.nats import NatsServer
from rigs.tcpconnection import TcpConnection
from rigs.tcpproxy import TcpProxy


async def test_an_acknowledgement_of_nats_is_lost_after_it_took_effect(nats_server: NatsServer) -> None:
    async with TcpProxy(nats_server.port) as proxy, await nats.connect(proxy.url(nats_server.url)) as connection:
        stream = connection.jetstream()
        await stream.add_stream(name="log", subjects=["log.>"])
        assert (await stream.publish("log.a", b"1")).seq == 1
        trigger = proxy.on(b'{"stream":"log"', "server", TcpConnection.cut, is_passed=False)

        with pytest.raises((NatsTimeoutError, ConnectionClosedError)):
            await stream.publish("log.a", b"2", timeout=1)

        assert trigger.fired == 1
        assert (await stream.publish("log.a", b"3")).seq == 3
        assert (await stream.get_msg("log", 2)).data == b"2"
        assert proxy.accepted == 2


async def test_a_commit_of_postgres_takes_effect_and_nobody_hears_of_it(postgres_url: str) -> None:
    url = make_url(postgres_url)
    assert url.port is not None
    async with TcpProxy(url.port) as proxy:
        plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
        connection = await asyncpg.connect(proxy.url(plain), timeout=10)
        await connection.execute("CREATE TABLE one (number int)")
        proxy.on(b"COMMIT", "client", TcpConnection.lose_answer)
        with pytest.raises((asyncpg.ConnectionDoesNotExistError, asyncpg.InterfaceError, ConnectionError)):
            async with connection.transaction():
                await connection.execute("INSERT INTO one VALUES (1)")
        connection.terminate()

        again = await asyncpg.connect(proxy.url(plain), timeout=10)
        assert await again.fetch("SELECT number FROM one") == [(1,)]
        # Kept back before it reaches the server, it has no effect.
        proxy.on(b"COMMIT", "client", TcpConnection.cut, is_passed=False)
        with pytest.raises((asyncpg.ConnectionDoesNotExistError, asyncpg.InterfaceError, ConnectionError)):
            async with again.transaction():
                await again.execute("INSERT INTO one VALUES (2)")
        again.terminate()

        last = await asyncpg.connect(proxy.url(plain), timeout=10)
        assert await last.fetch("SELECT number FROM one") == [(1,)]
        await last.close()
