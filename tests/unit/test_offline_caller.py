import socket
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio

from levelog.calls.faults import HandlerFault
from levelog_replay.calling import ReplayCaller

NOBODY = ("127.0.0.1", 9)
LIMIT = timedelta(seconds=30)


def connects() -> None:
    with socket.socket() as made:
        made.connect_ex(NOBODY)


async def connects_in_the_loop() -> None:
    connects()


@pytest_asyncio.fixture
async def caller() -> AsyncIterator[ReplayCaller]:
    made = ReplayCaller(threads=1)
    yield made
    await made.close()


async def test_a_function_that_connects_is_refused_in_its_thread_and_in_the_loop(caller: ReplayCaller) -> None:
    with pytest.raises(HandlerFault, match="replay refuses the network"):
        await caller.run("one", connects, LIMIT, is_async=False)
    with pytest.raises(HandlerFault, match="replay refuses the network"):
        await caller.run("one", connects_in_the_loop, LIMIT, is_async=True)


async def test_levelog_itself_may_connect(caller: ReplayCaller) -> None:
    assert await caller.run("one", lambda: 1, LIMIT, is_async=False) == 1
    connects()
