"""Three nats-servers, each behind a proxy: one that hangs is one that is away."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from levelog_base.errors import Unavailable
from levelog_base.wire.objects import Cluster
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import ensure_stream, open_stream
from levelog_log.transport.connection import connect
from rigs.logs import web_message, writer_for
from rigs.natscluster import NAMES, NatsCluster
from rigs.tcpproxy import TcpProxy
from rigs.waiting import until

CLUSTER = Cluster("test")


class FrontedCluster:
    """A cluster with a proxy before each server for its clients; `url` names all of them."""

    def __init__(self, cluster: NatsCluster, fronts: dict[str, TcpProxy]) -> None:
        self.cluster = cluster
        self.fronts = fronts
        self.url = ",".join(f"nats://127.0.0.1:{front.port}" for front in fronts.values())

    def hang(self, name: str) -> None:
        """Let a server say nothing more, to anybody."""
        self.cluster.isolate(name)
        self.fronts[name].pause()


@pytest.fixture
async def fronted() -> AsyncIterator[FrontedCluster]:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(NatsCluster())
        await cluster.joined()
        fronts = {
            name: await stack.enter_async_context(TcpProxy(server.port)) for name, server in cluster.servers.items()
        }
        async with await connect(cluster.servers["a"].url) as connection:
            await ensure_stream(connection, CLUSTER, replicas=3)
        yield FrontedCluster(cluster, fronts)


async def test_a_server_that_hangs_keeps_nobody_from_starting(fronted: FrontedCluster) -> None:
    fronted.hang("b")
    for _ in range(8):  # servers are tried in random order
        async with await connect(fronted.url) as connection:
            await open_stream(connection, CLUSTER)


async def test_a_running_process_leaves_a_server_that_hangs(fronted: FrontedCluster) -> None:
    async with await connect(fronted.url) as connection:
        stream = await open_stream(connection, CLUSTER)
        [used] = [name for name in NAMES if fronted.fronts[name].connections]
        fronted.hang(used)
        await until(lambda: connection.reconnects > 0, "another server", seconds=15)
        await until(
            lambda: BatchPublisher(stream).publish([web_message(writer_for(stream), "a", 1)]),
            "a leader that takes records",
            despite=Unavailable,
            seconds=60,
        )
