"""A cluster of three nats-servers."""

from collections.abc import AsyncIterator

import pytest

from rigs.natscluster import NatsCluster


@pytest.fixture
async def nats_cluster() -> AsyncIterator[NatsCluster]:
    """Each stream can be kept by all three."""
    async with NatsCluster() as cluster:
        await cluster.joined()
        yield cluster
