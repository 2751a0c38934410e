"""`--listen`: an HTTP server on a thread of its own, which answers while the event loop of the process cannot."""

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from msgspec import Struct

from levelog_base.errors import ConfigurationError, cannot_listen
from levelog_cli.settings import flag

log = logging.getLogger(__name__)

MOST_CLIENTS: Final = 64
"""Most clients at a time; for one more, the longest connected is cut off, so that probes are answered all the same."""
_END_SECONDS: Final = 0.2
"""What is not answered in this time at the end is not answered any more: the event loop of the process waits."""
WebPages = Mapping[str, Callable[[str], Awaitable[web.Response]]]
"""What makes a page out of the header Accept, by path; it is awaited on the server's thread."""


class ListenAddress(Struct, frozen=True):
    """An address to listen at."""

    host: str
    """Empty: all addresses."""
    port: int
    """0: a free one, which the log says."""

    @classmethod
    def parse(cls, text: str, option: str = "listen") -> "ListenAddress":
        """`HOST:PORT`, `[::1]:PORT`, or `:PORT` for all addresses. Raises ConfigurationError."""
        host, colon, port = text.strip().rpartition(":")
        is_bracketed = host.startswith("[") and host.endswith("]")
        is_number = port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 1 << 16
        if not colon or not is_number or "/" in host or (":" in host and not is_bracketed):
            raise ConfigurationError(
                f"{flag(option)} {text}: give HOST:PORT, as in 127.0.0.1:8080, [::1]:8080 or :8080 for all addresses"
            )
        return cls(host[1:-1] if is_bracketed else host, int(port))

    @property
    def is_local(self) -> bool:
        """Tell whether only this machine reaches it."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Server(web.Server):
    """Keeps the newest connections."""

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        for oldest in self.connections[:-MOST_CLIENTS]:
            oldest.force_close()


@contextmanager
def listening(address: ListenAddress, pages: WebPages) -> Generator[ListenAddress]:
    """Serve the pages while the context is open; yields where. Raises ConfigurationError if that cannot be had."""
    loop, is_over = asyncio.new_event_loop(), asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, headers={"Allow": "GET, HEAD"})
        make = pages.get(request.path)
        if make is None:
            return web.Response(text=f"there is {', '.join(pages)}\n", status=404)
        return await make(request.headers.get("Accept", ""))

    async def serve() -> None:
        clients = _Server(answer, access_log=None)
        server = await loop.create_server(clients, sock=bound)
        await is_over.wait()
        server.close()
        await clients.shutdown(_END_SECONDS)

    with _bound(address) as bound:
        found = ListenAddress(address.host, bound.getsockname()[1])
        log.info("listens at http://%s for %s", found, ", ".join(pages))
        thread = threading.Thread(target=loop.run_until_complete, args=[serve()], name="levelog listen", daemon=True)
        thread.start()
        try:
            yield found
        finally:
            loop.call_soon_threadsafe(is_over.set)
            thread.join()
            loop.close()


def _bound(address: ListenAddress) -> socket.socket:
    # A pod has an IPv4 address, an IPv6 address or both.
    is_dual = not address.host and socket.has_dualstack_ipv6()
    bound = socket.socket(socket.AF_INET6 if is_dual or ":" in address.host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_dual:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        bound.bind((address.host, address.port))
        bound.listen(MOST_CLIENTS)
    except OSError as error:
        bound.close()
        raise cannot_listen(f"{flag('listen')}: the process", address, error) from error
    return bound
