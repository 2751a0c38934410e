"""Three nats-servers, each behind a proxy: one that hangs is one that is away."""

import pytest

from levelog_base.errors import Unavailable
from levelog_base.wire.objects import Cluster
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import ensure_stream, open_stream
from levelog_log.transport.connection import connect
from rigs.logs import web_message, writer_for
from rigs.natscluster import NAMES, NatsCluster
from rigs.waiting import until

CLUSTER = Cluster("test")


@pytest.fixture
async def cluster(nats_cluster: NatsCluster) -> NatsCluster:
    """One that keeps a log."""
    async with await connect(nats_cluster.servers["a"].url) as connection:
        await ensure_stream(connection, CLUSTER, replicas=3)
    return nats_cluster


def hang(cluster: NatsCluster, name: str) -> None:
    """Let a server say nothing more, to anybody."""
    cluster.isolate(name)
    cluster.fronts[name].pause()


async def test_a_server_that_hangs_keeps_nobody_from_starting(cluster: NatsCluster) -> None:
    hang(cluster, "b")
    for _ in range(8):  # servers are tried in random order
        async with await connect(cluster.url) as connection:
            await open_stream(connection, CLUSTER)


async def test_a_running_process_leaves_a_server_that_hangs(cluster: NatsCluster) -> None:
    async with await connect(cluster.url) as connection:
        stream = await open_stream(connection, CLUSTER)
        [used] = [name for name in NAMES if cluster.fronts[name].connections]
        hang(cluster, used)
        await until(lambda: connection.reconnects > 0, "another server")
        await until(
            lambda: BatchPublisher(stream).publish([web_message(writer_for(stream), "a", 1)]),
            "a leader that takes records",
            despite=Unavailable,
            seconds=60,
        )
