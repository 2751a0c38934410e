"""Three real nats-servers that keep streams together, joined through proxies, so that one can be cut off."""

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Final

import aiohttp
import msgspec

from levelog_base.errors import Unavailable
from levelog_log.transport.connection import Connection, connect
from levelog_log.transport.jetstream import StreamAnswer, StreamConfig, StreamState, ask, ask_again
from rigs.assembled import Assembled
from rigs.nats import NatsServer
from rigs.ports import free_port
from rigs.tcpproxy import TcpProxy
from rigs.waiting import until

NAMES: Final = ("a", "b", "c")
SECONDS: Final = 60.0
"""An election takes up to 10 s; the rest is for machines that run everything at once."""


class NatsCluster(Assembled):
    """A cluster of three; each pair of servers is joined by a proxy of its own, and each has one before it for clients.

    Servers advertise a port at which nothing listens, so that routes go through the proxies alone. Clients are told of
    no other servers: each connection stays at the server that it was made to.
    """

    def __init__(self) -> None:
        self.servers: dict[str, NatsServer] = {}
        self.fronts: dict[str, TcpProxy] = {}
        self._routes: dict[tuple[str, str], TcpProxy] = {}
        self._monitors = {name: free_port() for name in NAMES}

    async def _open(self, stack: AsyncExitStack) -> None:
        ports = {name: free_port() for name in NAMES}
        for dialing, dialed in zip(NAMES, (*NAMES[1:], NAMES[0]), strict=True):  # each pair is joined once
            proxy = self._routes[dialing, dialed] = await stack.enter_async_context(TcpProxy(ports[dialed]))
            self.servers[dialing] = NatsServer(
                settings=_settings(dialing, ports[dialing], proxy.port, self._monitors[dialing])
            )
            stack.callback(self.servers[dialing].stop)
            self.fronts[dialing] = await stack.enter_async_context(TcpProxy(self.servers[dialing].port))
        await asyncio.gather(*(server.start() for server in self.servers.values()))
        await until(self._is_formed, "a cluster that makes streams of three replicas", seconds=SECONDS)

    @property
    def url(self) -> str:
        """Of all servers, through the proxies in `fronts`."""
        return ",".join(f"nats://127.0.0.1:{front.port}" for front in self.fronts.values())

    async def _is_formed(self) -> bool:
        try:
            async with await connect(self.servers["a"].url) as connection:
                reply = await connection.request_again("$JS.API.INFO")
        except Unavailable:
            return False
        return "error" not in msgspec.json.decode(reply.data, type=dict[str, msgspec.Raw])

    async def joined(self) -> None:
        """Wait until a stream can be kept by all three."""
        async with await connect(self.servers["a"].url) as connection:

            async def is_placed() -> bool:
                probe = StreamConfig(name="probe", subjects=("probe",), storage="memory", num_replicas=3)
                answer = await ask(connection, "STREAM.CREATE.probe", probe, StreamAnswer)
                return answer.error is None

            await until(is_placed, "a place for three replicas", seconds=SECONDS)
            await connection.request("$JS.API.STREAM.DELETE.probe")

    def isolate(self, name: str) -> None:
        """Stop what this server and the others send each other; connections stay open, and clients reach it."""
        for pair, proxy in self._routes.items():
            if name in pair:
                proxy.pause()

    def heal(self) -> None:
        """Let all servers hear each other again, from new connections on."""
        for proxy in self._routes.values():
            proxy.cut("reset")
            proxy.resume()

    async def leader(self, stream: str) -> str:
        """Name of the server that leads a stream, as the first one says; waits for an election."""
        found = ""

        async def is_elected() -> bool:
            nonlocal found
            async with await connect(self.servers["a"].url) as connection:
                found = await leader_of(connection, stream)
            return bool(found)

        await until(is_elected, f"a leader of {stream}", seconds=SECONDS)
        return found

    async def copies(self, stream: str) -> dict[str, StreamState]:
        """What each server says of its own copy of a stream; nothing of a server that does not answer or has none."""
        found: dict[str, StreamState] = {}
        async with aiohttp.ClientSession() as session:
            for name, port in self._monitors.items():
                with suppress(aiohttp.ClientError):
                    async with session.get(f"http://127.0.0.1:{port}/jsz?accounts=1&streams=1") as answer:
                        accounts = (await answer.json()).get("account_details") or ()
                    for each in (each for account in accounts for each in account.get("stream_detail") or ()):
                        if each["name"] == stream:
                            found[name] = msgspec.convert(each["state"], StreamState)
        return found


def _settings(name: str, port: int, route_port: int, monitor_port: int) -> str:
    return (
        f"server_name: {name}\n"
        f"http: 127.0.0.1:{monitor_port}\n"
        f"cluster {{ name: test, listen: 127.0.0.1:{port}, routes: [nats://127.0.0.1:{route_port}], pool_size: -1,\n"
        f'  no_advertise: true, cluster_advertise: "127.0.0.1:{free_port()}", connect_retries: 2 }}\n'
    )


async def leader_of(connection: Connection, stream: str) -> str:
    """Who leads a stream, as the server of a connection says; empty: nobody, as far as it knows."""
    answer = await ask_again(connection, f"STREAM.INFO.{stream}", None, StreamAnswer)
    return answer.cluster.leader if answer.cluster is not None else ""
