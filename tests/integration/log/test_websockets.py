"""Servers at ws://, for which more is loaded than for others."""

import asyncio
import sys
from asyncio.subprocess import PIPE

import pytest

from rigs.nats import NatsServer
from rigs.ports import free_port

SCRIPT = """
import asyncio, sys
from levelog_log.transport.connection import connect

async def main():
    async with await connect(sys.argv[1]) as connection:
        print(connection.is_connected)

print("aiohttp" in sys.modules)
asyncio.run(main())
print("aiohttp" in sys.modules)
"""


@pytest.mark.parametrize("scheme", ["nats", "ws"])
async def test_what_websockets_need_is_loaded_for_a_url_that_asks_for_them_and_for_no_other(scheme: str) -> None:
    port = free_port()
    async with NatsServer(settings=f"websocket {{ listen: 127.0.0.1:{port}, no_tls: true }}") as nats:
        url = f"ws://127.0.0.1:{port}" if scheme == "ws" else nats.url
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", SCRIPT, url, stdout=PIPE)
        printed, _ = await process.communicate()
    assert printed.decode().split() == ["False", "True", str(scheme == "ws")]
