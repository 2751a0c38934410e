"""Recorded histories; each is made once for a file, whose tests only read it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from rigs.lastnight import LastNight, record_last_night
from rigs.nats import NatsServer
from rigs.recorded import Recorded, record_webs


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def night(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LastNight]:
    """That of examples/lastnight."""
    async with record_last_night(tmp_path_factory.mktemp("lastnight")) as night:
        yield night


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recorded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Recorded]:
    """That of a Web which is scaled."""
    async with NatsServer() as nats:
        yield await record_webs(nats.url, tmp_path_factory.mktemp("recorded"))
