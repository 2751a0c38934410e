import asyncio
import gc
import socket
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop
from nats.aio.client import DEFAULT_MAX_FLUSHER_QUEUE_SIZE
from nats.aio.msg import Msg
from nats.errors import FlushTimeoutError

from levelog_base.errors import ConfigurationError, Unavailable
from levelog_log.transport.connection import SMALL_PAYLOAD_BYTES, Connection, connect
from levelog_log.transport.wire import Message
from rigs.hangups import end_by_reset
from rigs.logs import new_log, proxied, web_message, writer_for
from rigs.nats import NatsServer
from rigs.ports import free_port
from rigs.tcpconnection import TcpConnection
from rigs.tcpproxy import TcpProxy
from rigs.waiting import until

SHORT = timedelta(seconds=2)


async def test_a_server_that_is_not_there_is_named_without_credentials() -> None:
    url = f"nats://me:hunter2@127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable) as raised:
        await connect(url, timeout=SHORT)
    assert url.replace("me:hunter2@", "") in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:4222", "127.0.0.1:4222", "nats://:4222", "nats://a:b:c"])
async def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="nats://HOST:PORT"):
        await connect(url, timeout=SHORT)


async def test_a_server_without_jetstream_is_refused_with_what_to_do() -> None:
    async with NatsServer(has_jetstream=False) as server:
        with pytest.raises(ConfigurationError, match=r"JetStream is not enabled.*sync_interval: always"):
            await connect(server.url, timeout=SHORT)


async def test_a_second_server_is_used_when_the_first_is_not_there(nats_server: NatsServer) -> None:
    url = f"nats://127.0.0.1:{free_port()},{nats_server.url}"
    async with await connect(url, timeout=timedelta(seconds=10)) as connection:
        assert connection.is_connected


@pytest.mark.filterwarnings("ignore:parameter 'timeout' of type 'float' is deprecated")  # nats-py gives it to aiohttp
async def test_a_server_is_reached_over_websockets() -> None:
    port = free_port()
    async with (
        NatsServer(settings=f"websocket {{ listen: 127.0.0.1:{port}, no_tls: true }}"),
        await connect(f"ws://127.0.0.1:{port}") as connection,
    ):
        assert connection.is_connected


async def test_an_attempt_that_is_cancelled_at_any_moment_leaves_no_connection(nats_server: NatsServer) -> None:
    is_done, moment, before = False, 0, open_files()
    while not is_done:
        attempt = asyncio.create_task(connect(nats_server.url))
        await turn(moment)
        await asyncio.wait([attempt], timeout=moment / 10_000)
        is_done = attempt.done()
        moment += 1
        attempt.cancel()
        await asyncio.wait([attempt])
        if not attempt.cancelled():
            await attempt.result().close()
    await until(lambda: open_files() <= before, "as many open files as before")


@pytest.mark.parametrize("has_time", [True, False])
@pytest.mark.parametrize("turns", [-1, *range(0, 24, 4)])
async def test_a_close_that_is_cancelled_at_any_moment_leaves_nothing(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, turns: int, has_time: bool
) -> None:
    """The connection broke so many turns of the loop before; -1: it is up. A process that stood still has no time."""
    if not has_time:
        monkeypatch.setattr("levelog_log.transport.connection._CLOSE_SECONDS", 0.0)
    before = asyncio.all_tasks()
    async with TcpProxy(nats_server.port) as proxy:
        is_done, moment = False, 1
        while not is_done:
            connection = await connect(proxy.url(nats_server.url))
            if turns >= 0:
                connection.client.options["reconnect_time_wait"] = 0.0
                proxy.cut()
                await turn(turns)
            closing = asyncio.create_task(connection.close())
            await turn(moment)
            is_done = closing.done()
            moment += 1
            if not is_done:
                closing.cancel()
                await asyncio.wait([closing])
            assert closing.cancelled() is not is_done
            await until(lambda: not proxy.connections and asyncio.all_tasks() == before, "no connection, and no task")


def run_on_uvloop(run: Coroutine[Any, Any, None]) -> None:
    """As commands do; it refuses sockets that are closed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run)


async def turn(times: int) -> None:
    """Let all other tasks go on so often."""
    for _ in range(times):
        await asyncio.sleep(0)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_request_under_way_ends_when_the_connection_breaks(nats_server: NatsServer) -> None:
    async with await connect(nats_server.url) as connection:

        async def swallow(_: object) -> None:
            nats_server.kill()

        await connection.client.subscribe("silence", cb=swallow)
        await connection.client.flush()
        with pytest.raises(Unavailable, match="lost before an answer came"):
            await connection.request("silence", timeout=timedelta(minutes=5))


async def test_a_request_that_an_election_loses_is_asked_again(nats_server: NatsServer) -> None:
    async with await connect(nats_server.url) as answering, await connect(nats_server.url) as connection:
        asked: list[bytes] = []

        async def answer_the_second(message: Msg) -> None:
            asked.append(message.data)
            if len(asked) == 2:
                await message.respond(b"yes")

        await answering.subscribe("asked", answer_the_second)
        await answering.client.flush()
        assert (await connection.request_again("asked", b"there?")).data == b"yes"
        assert asked == [b"there?", b"there?"]


async def test_who_fails_on_a_message_gets_the_next_one_and_it_is_logged(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with await connect(nats_server.url) as connection:
        received: list[bytes] = []
        is_over = asyncio.Event()

        async def receive(message: Msg) -> None:
            received.append(message.data)
            if message.data == b"first":
                raise ZeroDivisionError
            is_over.set()

        await connection.subscribe("news", receive)
        await connection.publish_all([Message("news", b"", data) for data in (b"first", b"second")])
        async with asyncio.timeout(60):
            await is_over.wait()
        assert received == [b"first", b"second"]
        assert connection.is_connected
    assert [record.levelname for record in caplog.records if "ZeroDivisionError" in (record.exc_text or "")] == [
        "ERROR"
    ]


async def test_nothing_published_while_disconnected_is_sent_later(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        connection = stream.connection
        nats_server.kill()
        await until(lambda: not connection.is_connected, "the connection to break")
        with pytest.raises(Unavailable):
            await connection.publish_all([web_message(writer_for(stream), "w", 1)])
        with pytest.raises(Unavailable):
            await connection.request("$JS.API.INFO")
        await nats_server.start()
        await connection.wait_connected()
        assert connection.reconnects == 1
        assert await stream.last_sequence() == 0


async def test_what_fails_before_the_client_says_that_it_is_lost_is_part_of_the_outage(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream, proxied(nats_server) as (proxy, connection):
        proxy.refuse()
        proxy.cut()
        while connection.client.is_connected:  # noqa: ASYNC110 - nobody sets an event in this very turn of the loop
            await asyncio.sleep(0)
        assert connection.is_connected is False
        with pytest.raises(Unavailable) as raised:
            await connection.publish_all([web_message(writer_for(stream), "w", 1)])
        assert connection.absence.is_on
        assert raised.value.is_told


async def test_an_attempt_to_connect_again_that_fails_leaves_no_socket(nats_server: NatsServer) -> None:
    async with proxied(nats_server) as (proxy, connection):
        greeted = proxy.on(b"INFO", "server", TcpConnection.cut, is_passed=False)
        proxy.cut()
        await greeted.until_fired()
        await connection.wait_connected()
        transports = [each for each in gc.get_objects() if isinstance(each, asyncio.Transport)]
        ports = [each.get_extra_info("peername", ("", 0))[1] for each in transports if not each.is_closing()]
        assert ports.count(proxy.port) == 1


async def test_a_request_for_which_the_socket_has_no_room_ends_when_the_connection_breaks(
    nats_server: NatsServer,
) -> None:
    async with proxied(nats_server) as (proxy, connection):
        proxy.pause("client")
        large = Message("news", b"", bytes(SMALL_PAYLOAD_BYTES))
        await connection.publish_all([large] * 8)  # more than sockets take

        async def publish() -> None:
            with suppress(Unavailable):
                await connection.publish_all([Message("news", b"", b"")])

        many = [asyncio.create_task(publish()) for _ in range(3 * DEFAULT_MAX_FLUSHER_QUEUE_SIZE // 2)]
        request = asyncio.create_task(connection.request("$JS.API.INFO", timeout=timedelta(minutes=5)))
        await asyncio.wait(many, timeout=0.5)
        proxy.refuse()
        proxy.cut("reset")
        async with asyncio.timeout(60):
            with pytest.raises(Unavailable, match="lost before an answer came"):
                await request
        await proxy.accept()
        await asyncio.wait(many)


async def test_what_the_socket_had_no_room_for_is_not_sent_over_the_next_connection(nats_server: NatsServer) -> None:
    async with (
        proxied(nats_server) as (proxy, connection),
        await connect(nats_server.url) as other,
    ):
        received: list[bytes] = []

        async def receive(message: Msg) -> None:
            received.append(message.data)

        await other.subscribe("news", receive)
        await other.client.flush()
        proxy.pause("client")
        await connection.publish_all([Message("filling", b"", bytes(SMALL_PAYLOAD_BYTES))] * 8)
        await until(lambda: connection.client.pending_data_size == 0, "the first messages in the hands of the socket")
        await connection.publish_all([Message("news", b"", b"unsent")])
        proxy.cut("reset")
        await until(lambda: not connection.is_connected, "the connection to break")
        proxy.resume()
        await connection.wait_connected()
        await connection.publish_all([Message("news", b"", b"last")])
        await until(lambda: b"last" in received, "the last message")
        assert received == [b"last"]


async def test_nothing_is_sent_before_a_connection_that_is_made_again_is_noted(nats_server: NatsServer) -> None:
    async with proxied(nats_server) as (proxy, connection):
        greeted = proxy.on(b"PONG\r\n", "server", TcpConnection.pause)  # of the two that nats-py waits for
        proxy.cut()
        await greeted.until_fired()
        await until(lambda: connection.client.is_connected, "the client to be connected")
        assert not connection.is_connected
        request = asyncio.create_task(connection.request("$JS.API.INFO", timeout=timedelta(minutes=5)))
        await asyncio.wait([request], timeout=0.5)
        proxy.cut()
        await connection.wait_connected()
        async with asyncio.timeout(60):
            with pytest.raises(Unavailable):
                await request


def test_a_connection_is_made_again_after_attempts_that_are_reset_once_greeted() -> None:
    async def make_again() -> None:
        loop = asyncio.get_running_loop()
        async with NatsServer() as server, await connect(server.url) as connection:
            connection.client.options["reconnect_time_wait"] = 0.01
            server.kill()
            with socket.create_server(("127.0.0.1", server.port)) as listener:
                listener.setblocking(False)
                for turns in range(20):
                    peer, _ = await loop.sock_accept(listener)
                    await loop.sock_sendall(peer, b'INFO {"server_id":"x","version":"2.12.0","headers":true}\r\n')
                    await turn(turns)  # each may be the one in which the client begins to answer
                    end_by_reset(peer)
                    peer.close()
            await server.start()
            await connection.wait_connected()

    run_on_uvloop(asyncio.wait_for(make_again(), 60))


def test_a_connection_with_something_to_send_can_be_closed_while_nats_is_away() -> None:
    async def ignore(_: Msg) -> None: ...

    async def close() -> None:
        async with NatsServer() as server, await connect(server.url) as connection:
            server.kill()
            await until(lambda: not connection.is_connected, "the connection to break")
            await connection.subscribe("news", ignore)

    run_on_uvloop(close())


async def lose_socket_unnoticed(connection: Connection) -> Any:
    """Close the socket as uvloop does where it cannot write, so that the flusher ends; returns the client."""
    client: Any = connection.client
    client._transport._io_writer.transport.abort()
    await connection.publish_all([Message("news", b"", b"")])
    return client


def test_what_is_asked_while_nobody_has_noticed_that_the_socket_is_closed_is_lost_with_the_connection() -> None:
    async def ask() -> None:
        async with NatsServer() as server, await connect(server.url) as connection:
            await lose_socket_unnoticed(connection)
            await asyncio.sleep(0)  # in this turn of the loop the flusher ends; reading does in a later one
            with pytest.raises(Unavailable, match="lost before an answer came"):
                await connection.request("$JS.API.INFO")
            await connection.wait_connected()
            await connection.request("$JS.API.INFO")

    run_on_uvloop(ask())


def test_a_connection_is_made_again_if_a_ping_is_read_after_its_socket_was_closed() -> None:
    async def make_again() -> None:
        async with NatsServer() as server, await connect(server.url) as connection:
            client = await lose_socket_unnoticed(connection)
            client._transport._io_reader.feed_data(b"PING\r\n")
            await until(lambda: connection.reconnects == 1, "another connection")
            await connection.request("$JS.API.INFO")

    run_on_uvloop(make_again())


async def test_who_gave_up_waiting_for_a_server_that_goes_on_later_does_not_end_the_reading(
    nats_server: NatsServer,
) -> None:
    async with proxied(nats_server) as (proxy, connection):
        proxy.pause()
        with pytest.raises(FlushTimeoutError):
            await connection.client.flush(timeout=1)
        proxy.resume()
        await connection.request("$JS.API.INFO", timeout=SHORT)
