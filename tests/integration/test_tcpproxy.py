"""Each action of the TCP proxy does what it says, to bare sockets, NATS and PostgreSQL."""

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncpg
import nats
import pytest
import pytest_asyncio
from nats.errors import ConnectionClosedError
from nats.errors import TimeoutError as NatsTimeoutError
from sqlalchemy.engine import make_url

from rigs.hangups import HangUp
from rigs.nats import NatsServer
from rigs.ports import is_listening
from rigs.tcpconnection import TcpConnection
from rigs.tcpproxy import TcpProxy
from rigs.waiting import until

pytestmark = pytest.mark.long  # of a rig, which seldom changes


class Echo:
    """A server that sends back what it gets and remembers it; `dialogue` has a proxy before it."""

    def __init__(self) -> None:
        self.received = b""
        self.ended = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):  # the proxy's own end resets
            while piece := await reader.read(65_536):
                self.received += piece
                writer.write(piece)
                await writer.drain()
        self.ended += 1
        writer.close()

    async def until_received(self, wanted: bytes) -> None:
        async def has_all() -> bool:
            return self.received == wanted

        await until(has_all, f"{wanted!r} at the server")

    async def until_ended(self, times: int = 1) -> None:
        async def has_ended() -> bool:
            return self.ended == times

        await until(has_ended, f"the end of {times} connections at the server")


class Client:
    """A bare socket: nothing that arrived is lost when the connection breaks."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._connection, data)

    async def receive(self, *, seconds: float = 30.0) -> bytes:
        async with asyncio.timeout(seconds):
            return await asyncio.get_running_loop().sock_recv(self._connection, 65_536)

    async def exactly(self, data: bytes) -> None:
        """Receive this, in whatever pieces."""
        received = b""
        while len(received) < len(data):
            piece = await self.receive()
            assert piece, f"ended after {received!r}"
            received += piece
        assert received == data

    async def ends(self, how: HangUp) -> None:
        if how == "fin":
            assert await self.receive() == b""
            return
        with pytest.raises(ConnectionResetError):
            await self.receive()


@asynccontextmanager
async def connected(proxy: TcpProxy) -> AsyncGenerator[Client]:
    with socket.socket() as connection:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", proxy.port))
        yield Client(connection)


@pytest_asyncio.fixture
async def echo() -> AsyncIterator[tuple[Echo, TcpProxy]]:
    echo = Echo()
    listener = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    async with listener, TcpProxy(listener.sockets[0].getsockname()[1]) as proxy:
        yield echo, proxy
    await echo.until_ended(proxy.accepted)


async def test_bytes_pass_unchanged_in_both_directions(echo: tuple[Echo, TcpProxy]) -> None:
    server, proxy = echo
    sent = bytes(range(256)) * 4096
    async with connected(proxy) as client:
        sending = asyncio.create_task(client.send(sent))
        await client.exactly(sent)
        await sending
        assert proxy.connections[0].sent == {"client": len(sent), "server": len(sent)}
    assert server.received == sent


async def test_a_side_that_ends_ends_the_other(echo: tuple[Echo, TcpProxy]) -> None:
    server, proxy = echo
    async with connected(proxy) as client:
        await client.send(b"a")
        await client.exactly(b"a")
    await server.until_ended()

    async def has_none() -> bool:
        return not proxy.connections

    await until(has_none, "no connections")


@pytest.mark.parametrize("how", ["fin", "reset"])
async def test_open_connections_can_be_cut(echo: tuple[Echo, TcpProxy], how: HangUp) -> None:
    server, proxy = echo
    async with connected(proxy) as client:
        await client.send(b"a")
        await client.exactly(b"a")
        proxy.cut(how)
        await client.ends(how)
        await server.until_ended()
    async with connected(proxy) as client:
        await client.send(b"b")
        await client.exactly(b"b")


async def test_a_refusing_proxy_keeps_what_is_open_and_refuses_the_rest(echo: tuple[Echo, TcpProxy]) -> None:
    _, proxy = echo
    async with connected(proxy) as client:
        await client.send(b"a")
        await client.exactly(b"a")
        proxy.refuse()
        assert not is_listening(proxy.port)
        with pytest.raises(ConnectionRefusedError):
            async with connected(proxy):
                pass
        await client.send(b"b")
        await client.exactly(b"b")
        await proxy.accept()
        async with connected(proxy) as other:
            await other.send(b"c")
            await other.exactly(b"c")


async def test_a_paused_client_reaches_the_server_later(echo: tuple[Echo, TcpProxy]) -> None:
    server, proxy = echo
    async with connected(proxy) as client:
        await client.send(b"a")
        await client.exactly(b"a")
        proxy.pause("client")
        await client.send(b"b")
        with pytest.raises(TimeoutError):
            await client.receive(seconds=0.1)
        assert server.received == b"a"
        proxy.resume("client")
        await client.exactly(b"b")


async def test_a_paused_server_is_heard_later(echo: tuple[Echo, TcpProxy]) -> None:
    server, proxy = echo
    proxy.pause("server")
    async with connected(proxy) as client:
        await client.send(b"a")
        await server.until_received(b"a")
        with pytest.raises(TimeoutError):
            await client.receive(seconds=0.1)
        proxy.resume()
        await client.exactly(b"a")


async def test_a_paused_connection_can_be_cut(echo: tuple[Echo, TcpProxy]) -> None:
    server, proxy = echo
    proxy.pause()
    async with connected(proxy) as client:
        await client.send(b"a")

        async def is_open() -> bool:
            return len(proxy.connections) == 1

        await until(is_open, "a connection")
        proxy.cut("reset")
        await client.ends("reset")
    await server.until_ended()
    assert server.received == b""


async def test_a_delay_holds_for_each_direction(echo: tuple[Echo, TcpProxy]) -> None:
    _, proxy = echo
    proxy.delay(0.1)
    async with connected(proxy) as client:
        begun = time.monotonic()
        await client.send(b"a")
        await client.exactly(b"a")
        assert time.monotonic() - begun >= 0.2


@pytest.mark.parametrize("how", ["fin", "reset"])
async def test_a_connection_is_cut_after_so_many_bytes(echo: tuple[Echo, TcpProxy], how: HangUp) -> None:
    server, proxy = echo
    proxy.cut_after(5, "server", how)
    async with connected(proxy) as client:
        await client.send(b"abc")
        await client.exactly(b"abc")
        await client.send(b"defg")
        await client.exactly(b"de")
        await client.ends(how)
    await server.until_ended()
    assert server.received == b"abcdefg"
    proxy.cut_after(None, "server")
    async with connected(proxy) as client:
        await client.send(b"abcdefg")
        await client.exactly(b"abcdefg")


@pytest.mark.parametrize("how", ["fin", "reset"])
@pytest.mark.parametrize(("is_passed", "arrives"), [(True, b"begin;COMMIT"), (False, b"begin;")])
async def test_a_connection_is_cut_at_a_pattern(
    echo: tuple[Echo, TcpProxy], how: HangUp, is_passed: bool, arrives: bytes
) -> None:
    server, proxy = echo
    trigger = proxy.on(b"COMMIT", "client", lambda connection: connection.cut(how), is_passed=is_passed)
    async with connected(proxy) as client:
        await client.send(b"begin;COMMIT;more")
        await trigger.until_fired()
    await server.until_ended()
    assert server.received == arrives


async def test_a_pattern_is_seen_across_pieces_and_counted(echo: tuple[Echo, TcpProxy]) -> None:
    server, proxy = echo
    seen: list[int] = []
    trigger = proxy.on(b"abab", "client", lambda connection: seen.append(connection.sent["client"]), nth=2, times=2)
    async with connected(proxy) as client:
        for piece in (b"xaba", b"bab", b"ab", b"ababababab"):
            await client.send(piece)
            await client.exactly(piece)
    await server.until_ended()
    # Matches do not overlap: they end after 5, 9, 13 and 17 bytes, and the second and third count.
    assert seen == [9, 13]
    assert trigger.fired == 2
    assert server.received == b"xabababab" + b"ababababab"


async def test_a_pattern_pauses_a_connection_before_itself(echo: tuple[Echo, TcpProxy]) -> None:
    server, proxy = echo
    trigger = proxy.on(b"COMMIT", "client", TcpConnection.pause, is_passed=False)
    async with connected(proxy) as client:
        await client.send(b"begin;COMMIT;more")
        await trigger.until_fired()
        await server.until_received(b"begin;")
        proxy.resume()
        await server.until_received(b"begin;COMMIT;more")


async def test_a_pattern_counts_on_some_connections_only(echo: tuple[Echo, TcpProxy]) -> None:
    _, proxy = echo
    greeted: set[TcpConnection] = set()
    proxy.on(b"hello", "client", greeted.add, times=None)
    trigger = proxy.on(b"COMMIT", "client", TcpConnection.cut, where=greeted.__contains__, is_passed=False)
    async with connected(proxy) as client, connected(proxy) as other:
        await other.send(b"hello")
        await other.exactly(b"hello")
        await client.send(b"COMMIT")
        await client.exactly(b"COMMIT")
        await other.send(b"COMMIT")
        await other.ends("fin")
    assert trigger.matched == 1


async def test_a_trigger_that_is_removed_does_nothing(echo: tuple[Echo, TcpProxy]) -> None:
    _, proxy = echo
    trigger = proxy.on(b"a", "client", TcpConnection.cut, times=None)
    proxy.remove(trigger)
    async with connected(proxy) as client:
        await client.send(b"a")
        await client.exactly(b"a")
    assert trigger.fired == 0


async def test_an_answer_is_lost_after_the_server_got_the_question(echo: tuple[Echo, TcpProxy]) -> None:
    server, proxy = echo
    proxy.on(b"COMMIT", "client", TcpConnection.lose_answer)
    async with connected(proxy) as client:
        await client.send(b"begin;")
        await client.exactly(b"begin;")
        await client.send(b"COMMIT")
        await client.ends("fin")
    assert server.received == b"begin;COMMIT"


async def test_a_call_that_fails_is_not_silent() -> None:
    def fail(_: TcpConnection) -> None:
        raise LookupError("nothing to strike")

    echo = Echo()

    async def run(port: int) -> None:
        async with TcpProxy(port) as proxy:
            proxy.on(b"a", "client", fail)
            async with connected(proxy) as client:
                await client.send(b"a")
                await client.ends("fin")

    listener = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    async with listener:
        with pytest.raises(LookupError, match="nothing to strike"):
            await run(listener.sockets[0].getsockname()[1])
        await echo.until_ended()


async def test_a_server_that_does_not_listen_resets_its_clients() -> None:
    async with TcpProxy(1) as proxy, connected(proxy) as client:
        await client.ends("reset")


async def test_the_end_closes_everything(echo: tuple[Echo, TcpProxy]) -> None:
    server, proxy = echo
    async with connected(proxy) as client:
        await client.send(b"a")
        await client.exactly(b"a")
        async with TcpProxy(proxy.port) as outer, connected(outer) as far:
            await far.send(b"b")
            await far.exactly(b"b")
            outer.pause()
            await far.send(b"c")
        assert not is_listening(outer.port)
    await server.until_ended(2)


def test_a_pattern_of_no_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="no bytes"):
        TcpProxy(1).on(b"", "client", TcpConnection.cut)


def test_a_url_keeps_all_but_its_address() -> None:
    proxy = TcpProxy(1)
    assert proxy.url("nats://127.0.0.1:4222") == f"nats://127.0.0.1:{proxy.port}"
    assert (
        proxy.url("postgresql+asyncpg://me:secret@db:5432/one?a=b")
        == f"postgresql+asyncpg://me:secret@127.0.0.1:{proxy.port}/one?a=b"
    )


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
