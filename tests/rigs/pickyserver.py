"""An HTTPS server that lets in whom a test says, for credentials and certificates that change while it is asked."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Self

from aiohttp import web

from rigs.certificates import Authority, Certified
from rigs.ports import free_port


class PickyServer:
    """Answers 401 unless `accepts(token, common name of the client's certificate)`, else 200.

    `/watch` streams a line for each `tell()`. `serve` changes certificate and authority, and breaks all connections.
    """

    def __init__(self, certified: Certified, *, clients: Authority | None = None) -> None:
        self.accepts: Callable[[str, str], bool] = lambda _token, _name: True
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self._certified, self._clients = certified, clients
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        await self.serve(self._certified)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def serve(self, certified: Certified) -> None:
        """Go on with another certificate, on the same port."""
        await self._stop()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certified.certificate, certified.key)
        if self._clients is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(self._clients.file)
        application = web.Application()
        application.router.add_get("/watch", self._watch)
        application.router.add_route("*", "/{rest:.*}", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=context, reuse_address=True).start()

    def tell(self, line: bytes) -> None:
        """Send a line to who watches."""
        self._lines.put_nowait(line + b"\n")

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _is_accepted(self, request: web.Request) -> bool:
        certificate = request.transport.get_extra_info("peercert") if request.transport else None
        names = [value for pair in (certificate or {}).get("subject", ()) for key, value in pair if key == "commonName"]
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return self.accepts(token, names[0] if names else "")

    async def _answer(self, request: web.Request) -> web.Response:
        return web.json_response({}, status=200 if self._is_accepted(request) else 401)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if not self._is_accepted(request):
            return web.json_response({}, status=401)
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(await self._lines.get())
