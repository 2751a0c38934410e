"""Old history is folded, not acted on: also after the connection to NATS was lost, and where the log grows in steps."""

from pathlib import Path

import pytest

from levelog_log.messages import MessageWriter
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import ensure_stream
from levelog_log.transport.connection import connect
from rigs.nats import NatsServer
from rigs.processing import CLUSTER, PARTITIONS, Processing
from rigs.tcpproxy import TcpProxy
from rigs.webs import web

VERSIONS = 5000
"""Of one Web while nobody reads: several batches, after each of which a processor could decide."""


@pytest.mark.parametrize("how", ["lost", "held up"])
async def test_invariant_9_what_happened_while_nobody_read_is_folded_before_anything_is_decided(
    nats_server: NatsServer, tmp_path: Path, how: str
) -> None:
    """With a connection that is lost, and with one that stands still, as in a process that was paused."""
    async with (
        TcpProxy(nats_server.port) as proxy,
        Processing(proxy.url(nats_server.url), f"sqlite:///{tmp_path}/tables.db", cluster=CLUSTER) as stack,
        await connect(nats_server.url) as behind,
    ):
        processor = stack.start()
        await stack.folded(await stack.listed(web("shop", 1, replicas=0)))
        before = processor.calls.functions["webs/pods"]
        if how == "lost":
            proxy.refuse()
            proxy.cut()
        else:
            proxy.pause()
        stream = await ensure_stream(behind, CLUSTER, partitions=PARTITIONS)
        publisher = BatchPublisher(stream)
        writer = MessageWriter(CLUSTER, PARTITIONS, source="test")
        for first in range(2, VERSIONS, 500):
            numbers = range(first, min(first + 500, VERSIONS))
            await publisher.publish([writer.message(web("shop", n, replicas=n % 7)) for n in numbers])
        last = await stream.last_sequence()
        await proxy.accept()
        proxy.resume()
        await stack.folded(last)
        assert processor.calls.functions["webs/pods"] - before == 1
