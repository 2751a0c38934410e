import os

import aiohttp
import nats
import pytest
from nats.js.errors import ServiceUnavailableError

from rigs.nats import MAX_PAYLOAD_BYTES, NatsServer
from rigs.ports import free_port, is_listening
from rigs.processes import ProcessEnded

pytestmark = pytest.mark.long  # of a rig, which seldom changes


async def test_acknowledged_messages_outlive_a_killed_server(nats_server: NatsServer) -> None:
    async with await nats.connect(nats_server.url) as connection:
        stream = connection.jetstream()
        await stream.add_stream(name="log", subjects=["log.>"])
        sent = [(await stream.publish("log.one", str(number).encode())).seq for number in range(10)]
    nats_server.kill()
    assert not is_listening(nats_server.port)
    assert nats_server.store_dir.is_dir()

    await nats_server.start()

    async with await nats.connect(nats_server.url) as connection:
        stream = connection.jetstream()
        found = [(await stream.get_msg("log", sequence)).data for sequence in sent]
    assert found == [str(number).encode() for number in range(10)]


async def test_an_object_of_the_largest_size_that_kubernetes_knows_fits_in_a_message(nats_server: NatsServer) -> None:
    async with await nats.connect(nats_server.url) as connection:
        assert connection.max_payload == MAX_PAYLOAD_BYTES
        stream = connection.jetstream()
        await stream.add_stream(name="log", subjects=["log.>"])
        assert (await stream.publish("log.large", bytes(3 * 512 * 1024))).seq == 1


async def test_each_test_has_an_empty_server(nats_server: NatsServer) -> None:
    async with await nats.connect(nats_server.url) as connection:
        assert await connection.jetstream().streams_info() == []


async def test_a_server_without_jetstream_says_so() -> None:
    async with NatsServer(has_jetstream=False) as server, await nats.connect(server.url) as connection:
        with pytest.raises(ServiceUnavailableError):
            await connection.jetstream().account_info()


async def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(ProcessEnded, match="no_such_thing"):
        async with NatsServer(settings="no_such_thing: 1"):
            pass


async def test_nothing_is_left_after_stop() -> None:
    async with NatsServer() as server:
        assert server.process is not None
        pid = server.process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not server.folder.exists()
    assert not is_listening(server.port)


async def test_what_is_acknowledged_is_synced_to_disk() -> None:
    port = free_port()
    async with (
        NatsServer(settings=f"http: 127.0.0.1:{port}"),
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/varz") as answer,
    ):
        assert (await answer.json())["jetstream"]["config"]["sync_always"] is True
