"""One client's connection through the TCP proxy, and what may happen to it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from rigs.hangups import HangUp, hang_up
from rigs.waiting import until

Source = Literal["client", "server"]
"""Who sends."""

SOURCES: tuple[Source, ...] = ("client", "server")
PIECE_BYTES = 65_536


class Trigger:
    """Calls `then` when a sender has sent a pattern; see `TcpProxy.on`. `fired` counts how often it did."""

    def __init__(
        self,
        pattern: bytes,
        source: Source,
        then: "Callable[[TcpConnection], None]",
        *,
        where: "Callable[[TcpConnection], bool]",
        is_passed: bool,
        nth: int,
        times: int | None,
    ) -> None:
        if not pattern:
            raise ValueError("a pattern of no bytes is everywhere")
        self.pattern = pattern
        self.source: Source = source
        self.then = then
        self.where = where
        self.is_passed = is_passed
        self.matched = 0
        self.fired = 0
        self._first = nth
        self._last = None if times is None else nth + times - 1

    def is_due(self) -> bool:
        """Count a match; whether it is one to act on."""
        self.matched += 1
        return self.matched >= self._first and (self._last is None or self.matched <= self._last)

    def fire(self, connection: "TcpConnection") -> None:
        """Do it."""
        self.then(connection)
        self.fired += 1

    async def until_fired(self) -> None:
        """Wait until it fired."""
        await until(lambda: self.fired > 0, f"{self.pattern!r} from the {self.source}")


@dataclass
class Conditions:
    """What all connections of a proxy are subject to."""

    paused: set[Source] = field(default_factory=set)
    triggers: list[Trigger] = field(default_factory=list)


class TcpConnection:
    """One client's connection through the proxy; `sent` counts the bytes of each sender that were passed on."""

    def __init__(
        self,
        conditions: Conditions,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.sent: dict[Source, int] = dict.fromkeys(SOURCES, 0)
        self.is_cut = False
        self._conditions = conditions
        self._readers: dict[Source, asyncio.StreamReader] = {"client": client[0], "server": server[0]}
        self._writers: dict[Source, asyncio.StreamWriter] = {"client": server[1], "server": client[1]}
        self._flows: dict[Source, asyncio.Event] = {source: asyncio.Event() for source in SOURCES}
        self._tails: dict[Trigger, bytes] = {}
        self._loses_answer = False
        for source in SOURCES:
            if source not in conditions.paused:
                self.resume(source)

    def pause(self, source: Source | None = None) -> None:
        """Pass on nothing more of this sender, or of both; buffers fill, and then the sender has to wait."""
        for one in SOURCES if source is None else (source,):
            self._flows[one].clear()

    def resume(self, source: Source | None = None) -> None:
        """Go on, losing nothing."""
        for one in SOURCES if source is None else (source,):
            self._flows[one].set()

    def cut(self, how: HangUp = "fin") -> None:
        """End it. The client sees `how`; the server gets what was passed on, and then an ordinary end."""
        self.is_cut = True
        hang_up(self._writers["server"].transport, how)
        hang_up(self._writers["client"].transport, "fin")
        self.resume()

    def reset(self) -> None:
        """End it by a reset for the client."""
        self.cut("reset")

    def abandon(self) -> None:
        """End it by a reset for both, whatever is still to be passed on."""
        self.is_cut = True
        for writer in self._writers.values():
            writer.transport.abort()
        self.resume()

    def lose_answer(self) -> None:
        """Cut the connection when the server sends next, passing on nothing of that."""
        self._loses_answer = True

    async def run(self) -> None:
        """Pass on bytes until both sides have ended."""
        try:
            await asyncio.gather(*(self._pump(source) for source in SOURCES))
        finally:
            self.cut()
            for writer in self._writers.values():
                with suppress(ConnectionError):  # of a side that ended it by a reset
                    await writer.wait_closed()

    async def _pump(self, source: Source) -> None:
        reader, writer = self._readers[source], self._writers[source]
        try:
            while piece := await reader.read(PIECE_BYTES):
                await self._flows[source].wait()
                if source == "server" and self._loses_answer:
                    self.cut()
                await self._pass_on(source, piece, writer)
            await self._flows[source].wait()
            with suppress(OSError):  # of a side that is gone already: shutdown() says so by ENOTCONN
                writer.write_eof()
        except ConnectionError:
            self.cut("reset")

    async def _pass_on(self, source: Source, piece: bytes, writer: asyncio.StreamWriter) -> None:
        passed = 0
        for end, happens in [*self._due_within(source, piece), (len(piece), None)]:
            await self._flows[source].wait()
            if self.is_cut:
                return
            if end > passed:
                writer.write(piece[passed:end])
                await writer.drain()
                self.sent[source] += end - passed
                passed = end
            if happens is not None:
                happens(self)

    def _due_within(self, source: Source, piece: bytes) -> "list[tuple[int, Callable[[TcpConnection], None]]]":
        """What happens after how many bytes of the piece, in order."""
        due: list[tuple[int, Callable[[TcpConnection], None]]] = []
        for trigger in self._conditions.triggers:
            if trigger.source == source:
                due += [(end, trigger.fire) for end in self._ends_of(trigger, piece)]
        return sorted(due, key=lambda one: one[0])

    def _ends_of(self, trigger: Trigger, piece: bytes) -> list[int]:
        """After how many bytes of the piece the trigger fires; a pattern may begin in the piece before."""
        length = len(trigger.pattern)
        tail = self._tails.get(trigger, b"")
        window = tail + piece
        ends: list[int] = []
        after = 0
        while (found := window.find(trigger.pattern, after)) >= 0:
            after = found + length
            if trigger.where(self) and trigger.is_due():
                ends.append(max(0, (after if trigger.is_passed else found) - len(tail)))
        self._tails[trigger] = window[max(after, len(window) - length + 1) :]
        return ends
