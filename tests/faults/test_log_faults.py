"""What goes wrong on the way to the log, and what ingest makes of it."""

import logging
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from levelog_base.wire.records import ObjectSeen
from levelog_log.stream import LogStream, open_stream
from levelog_log.transport.connection import connect
from levelog_sandbox.sandbox import Sandbox
from rigs.ingesting import config_map, gaps, ingesting, lists, log_of, state_of, until_recorded, until_watching
from rigs.logs import change_settings
from rigs.nats import NatsServer
from rigs.tcpproxy import TcpProxy
from rigs.waiting import until


class World:
    """A sandbox, and the log of that cluster as it is seen directly and through a proxy."""

    def __init__(
        self, sandbox: Sandbox, kubeconfig: Path, proxy: TcpProxy, stream: LogStream, behind: LogStream
    ) -> None:
        self.sandbox, self.kubeconfig, self.proxy, self.stream, self.behind = sandbox, kubeconfig, proxy, stream, behind

    def create(self, *names: str, data: str = "") -> None:
        for name in names:
            self.sandbox.user.create(config_map(name, value=data))


@pytest.fixture
async def world(tmp_path: Path, nats_server: NatsServer) -> AsyncGenerator[World]:
    async with (
        Sandbox() as sandbox,
        TcpProxy(nats_server.port) as proxy,
        await connect(nats_server.url) as connection,
        await connect(proxy.url(nats_server.url)) as proxied,
    ):
        kubeconfig = sandbox.kubeconfig(tmp_path / "config")
        stream = await log_of(kubeconfig, connection)
        yield World(sandbox, kubeconfig, proxy, stream, await open_stream(proxied, stream.cluster))


async def test_invariant_1_a_full_log_is_told_once_and_goes_on_by_itself_when_there_is_room(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "levelog_log"):
        async with ingesting(world.kubeconfig, world.stream) as ingest:
            await until_watching(ingest)
            await change_settings(world.stream, max_bytes=100_000, discard="new")
            names = [f"c-{number}" for number in range(40)]
            world.create(*names, data="x" * 5000)
            await until(
                lambda: ingest.snapshot()[0].phase == "retrying" and "NATS is full" in ingest.snapshot()[0].detail,
                "the full log to be noticed",
            )
            world.sandbox.user.delete("configmaps", "c-0")
            world.sandbox.end_watches()
            await change_settings(world.stream, max_bytes=-1)
            records = await until_recorded(world.stream, lambda records: state_of(records).keys() == set(names[1:]))
            await until(lambda: "NATS has room again" in caplog.messages, "the end to be told")
    told = [message for message in caplog.messages if message.startswith("NATS is full")]
    assert len(told) == 1
    assert "maximum bytes exceeded" in told[0]
    assert "max_bytes" in told[0]
    assert (lists(records), gaps(records)) == (1, [])


async def test_invariant_1_while_nats_stands_still_reading_waits_and_nothing_is_lost(world: World) -> None:
    async with ingesting(world.kubeconfig, world.behind) as ingest:
        await until_watching(ingest)
        world.proxy.pause()
        names = [f"c-{number}" for number in range(60)]
        # More than what waits and the batch under way may hold together, so that the watch itself is held up.
        world.create(*names, data="x" * 500_000)
        last = world.sandbox.user.get("configmaps", names[-1])["metadata"]["resourceVersion"]
        listed = ingest.snapshot()[0].version or 0
        await until(lambda: (ingest.snapshot()[0].version or 0) > listed, "the watch to be read")
        assert (ingest.snapshot()[0].version or 0) < int(last)
        world.proxy.resume()
        records = await until_recorded(world.stream, lambda records: state_of(records).keys() == set(names))
    order = [record.record.key.name for record in records if isinstance(record.record, ObjectSeen)]
    assert list(dict.fromkeys(order)) == names
    assert (lists(records), gaps(records)) == (1, [])
