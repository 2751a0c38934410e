"""`--listen`: an HTTP server on a thread of its own for `/healthz`, `/readyz` and `/metrics`."""

import logging
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from levelog_base.errors import ConfigurationError, cannot_listen
from levelog_cli.settings import flag

log = logging.getLogger(__name__)

CLIENT_SECONDS: Final = 5.0
"""So long a client may be silent while it asks."""
MOST_CLIENTS: Final = 64
"""Most clients at a time; for one more, the longest connected is cut off, so that probes are answered all the same."""


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


class WebPage(Struct, frozen=True):
    """An answer to a request."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


WebPages = Mapping[str, Callable[[str], WebPage]]
"""What makes a page out of the header Accept, by path."""


@contextmanager
def listening(address: ListenAddress, pages: WebPages) -> Generator[ListenAddress]:
    """Serve the pages while the context is open; yields where. Raises ConfigurationError if that cannot be had."""

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_SECONDS

        def do_GET(self) -> None:
            make = pages.get(urlsplit(self.path).path)
            page = make(self.headers.get("Accept", "")) if make is not None else _missing(pages)
            self.send_response(page.status)
            self.send_header("Content-Type", page.content_type)
            self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(page.body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
            log.debug("%s %s", self.client_address[0], format % args)

    with _server(address, Handler) as server:
        found = ListenAddress(address.host or "127.0.0.1", server.server_address[1])
        log.info("listens at http://%s for %s", found, ", ".join(pages))
        thread = threading.Thread(target=server.serve_forever, name="levelog listen", daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


def _server(address: ListenAddress, handler: type[BaseHTTPRequestHandler]) -> ThreadingTCPServer:
    # A pod has an IPv4 address, an IPv6 address or both.
    is_dual = not address.host and socket.has_dualstack_ipv6()
    connected, lock = OrderedDict[socket.socket, None](), threading.Lock()

    class Server(ThreadingTCPServer):  # http.server's own looks up its name, which may take long
        allow_reuse_address = True
        address_family = socket.AF_INET6 if is_dual or ":" in address.host else socket.AF_INET
        daemon_threads = True
        request_queue_size = MOST_CLIENTS

        def process_request(self, request: Any, client_address: Any) -> None:
            with lock:
                if len(connected) >= MOST_CLIENTS:
                    oldest, _ = connected.popitem(last=False)
                    with suppress(OSError):  # it has gone by itself
                        oldest.shutdown(socket.SHUT_RDWR)
                connected[request] = None
            super().process_request(request, client_address)

        def shutdown_request(self, request: Any) -> None:
            with lock:
                connected.pop(request, None)
            super().shutdown_request(request)

        def server_bind(self) -> None:
            if is_dual:
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            super().server_bind()

        def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
            log.debug("%s: not answered", client_address, exc_info=True)

    try:
        return Server((address.host, address.port), handler)
    except OSError as error:
        raise cannot_listen(f"{flag('listen')}: the process", address, error) from error


def _missing(pages: WebPages) -> WebPage:
    return WebPage(f"there is {', '.join(pages)}\n".encode(), status=HTTPStatus.NOT_FOUND)
