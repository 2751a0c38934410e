"""A TCP proxy before NATS or PostgreSQL that stops and loses bytes as it is told."""

import asyncio
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from rigs.hangups import HangUp, hang_up
from rigs.ports import free_port
from rigs.tcpconnection import SOURCES, Conditions, Source, TcpConnection, Trigger


class TcpProxy:
    """Listens on a port of 127.0.0.1 and passes bytes on to another one, transparently unless told otherwise.

    Limits: TLS passes through unread, so that patterns are not seen in it; a client whose server does not listen is
    accepted and reset. Pauses hold for connections to come too. `port` stays the same while
    connections are refused. `connections` are those that are open, `accepted` counts all.
    """

    def __init__(self, server_port: int) -> None:
        self.port = free_port()
        self.connections: list[TcpConnection] = []
        self.accepted = 0
        self._is_closed = False
        self._server_port = server_port
        self._conditions = Conditions()
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.refuse()
        self._is_closed = True
        for connection in self.connections:
            connection.abandon()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._failures and error is None:
            raise self._failures[0]

    def lead_to(self, server_port: int) -> None:
        """Pass new connections on to another port."""
        self._server_port = server_port

    def url(self, url: str) -> str:
        """The server's URL, with this proxy's address in place of the server's."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}"))

    def on(
        self,
        pattern: bytes,
        source: Source,
        then: Callable[[TcpConnection], None],
        *,
        where: Callable[[TcpConnection], bool] = lambda _: True,
        is_passed: bool = True,
        nth: int = 1,
        times: int | None = 1,
    ) -> Trigger:
        """Call `then` the nth time that this sender sends the pattern, counted over all connections for which `where`.

        Everything up to the pattern was passed on by then, the pattern too if `is_passed`; the rest follows, unless
        the connection is cut or paused. `then` may be `TcpConnection.cut`, `.reset`, `.pause`, `.lose_answer`; nothing
        else of the proxy runs meanwhile.
        """
        trigger = Trigger(pattern, source, then, where=where, is_passed=is_passed, nth=nth, times=times)
        self._conditions.triggers.append(trigger)
        return trigger

    def remove(self, trigger: Trigger) -> None:
        """Forget a trigger."""
        self._conditions.triggers.remove(trigger)

    def pause(self, source: Source | None = None) -> None:
        """Stop passing on what this sender, or both, send: connections stay open."""
        self._conditions.paused.update(SOURCES if source is None else (source,))
        for connection in self.connections:
            connection.pause(source)

    def resume(self, source: Source | None = None) -> None:
        """Go on, losing nothing."""
        self._conditions.paused.difference_update(SOURCES if source is None else (source,))
        for connection in self.connections:
            connection.resume(source)

    def cut(self, how: HangUp = "fin") -> None:
        """End all connections."""
        for connection in self.connections:
            connection.cut(how)

    def refuse(self) -> None:
        """Refuse new connections; those that are open go on."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def accept(self) -> None:
        """Accept new connections."""
        if self._listener is None:
            self._listener = await asyncio.start_server(self._greet, "127.0.0.1", self.port)

    def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connect(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failures.append(failure)  # of a trigger's call: nothing else raises

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            server = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            hang_up(writer.transport, "reset")
            return
        connection = TcpConnection(self._conditions, (reader, writer), server)
        if self._is_closed:
            connection.abandon()
        self.connections.append(connection)
        try:
            await connection.run()
        finally:
            self.connections.remove(connection)
