"""The log and the leases are kept by three servers of a cluster, also if fewer have kept them before."""

import pytest

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import Application, Cluster
from levelog_base.wire.subjects import lease_stream
from levelog_log.leases import Lease
from levelog_log.stream import LogStream, ensure_stream
from levelog_log.transport.connection import connect
from levelog_log.transport.jetstream import StreamAnswer, ask_again
from rigs.logs import new_log
from rigs.nats import NatsServer
from rigs.natscluster import NatsCluster


async def kept_by(stream: LogStream, name: str) -> int:
    return (await ask_again(stream.connection, f"STREAM.INFO.{name}", None, StreamAnswer)).config.num_replicas


async def test_a_cluster_keeps_log_and_leases_on_three_servers_from_the_next_start_on(
    nats_cluster: NatsCluster,
) -> None:
    async with await connect(nats_cluster.servers["a"].url) as connection:
        stream = await ensure_stream(connection, Cluster("test"), replicas=1)
        await Lease(stream, Application("webs"), "ingest", holder="me").take()
        leases = lease_stream(stream.cluster)
        assert (await kept_by(stream, stream.name), await kept_by(stream, leases)) == (1, 1)
        stream = await ensure_stream(connection, Cluster("test"))
        assert (stream.replicas, await kept_by(stream, stream.name), await kept_by(stream, leases)) == (3, 3, 3)
        assert (await ensure_stream(connection, Cluster("test"), replicas=1)).replicas == 3, "never lowered"


async def test_a_server_on_its_own_keeps_the_log_alone_and_says_if_more_are_asked_for(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        assert stream.replicas == await kept_by(stream, stream.name) == 1
        with pytest.raises(ConfigurationError, match=r"on 3 servers of NATS: .* not supported in non-clustered mode"):
            await ensure_stream(stream.connection, stream.cluster, replicas=3)
