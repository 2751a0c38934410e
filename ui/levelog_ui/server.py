"""The HTTP server of the pages: routes, who may ask, and errors as pages. It reads, and has nothing to write with."""

import asyncio
import errno
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

from aiohttp import web

from levelog_base.errors import ConfigurationError, LevelogError, Unavailable, cannot_listen
from levelog_base.wire.origins import is_of_a_page, strange_name
from levelog_history.records import chosen
from levelog_ui.again import AgainCode
from levelog_ui.againpages import again_page, what_if_page
from levelog_ui.bundlepast import BundlePast
from levelog_ui.decisionpage import decision_page
from levelog_ui.fieldspage import fields_page
from levelog_ui.flowpage import flow_page
from levelog_ui.levelspage import levels_page
from levelog_ui.links import object_path
from levelog_ui.live import LogPosition
from levelog_ui.objectpage import object_page
from levelog_ui.past import LivePast, Past
from levelog_ui.rendering import rendered

log = logging.getLogger(__name__)

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_ASSETS: Final = {"levelog.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Values = Callable[[web.Request], Awaitable[dict[str, Any] | None]]
"""Gives the values of a template; None: there is nothing of what the address names."""
_DECISION: Final = r"/d/{ordinal:\d{1,18}}"


class PageServer:
    """Answers requests from the past that it was given last."""

    def __init__(self, *, names: Collection[str] = (), again: AgainCode | None = None) -> None:
        """`names`: further host names under which the pages may be asked for. `again`: the code that decides again."""
        self._names = names
        self._again = again
        self._code = again.file if again is not None else None
        self._shown: Past | None = None
        self._position: LogPosition | None = None
        self._asked = 0
        """Requests that are being answered."""
        self._is_idle = asyncio.Event()
        self._assets = {name: (files("levelog_ui") / "assets" / name).read_bytes() for name in _ASSETS}

    @asynccontextmanager
    async def showing(self, past: Past) -> AsyncGenerator[None]:
        """Answer from a past while the context is open; at its end, wait for the answers that are under way."""
        self._shown = past
        self._position = LogPosition(past) if isinstance(past, LivePast) else None
        try:
            yield
        finally:
            self._shown = self._position = None
            while self._asked:
                self._is_idle.clear()
                await self._is_idle.wait()

    @property
    def _past(self) -> Past:
        """The past that is shown now. Raises Unavailable."""
        if self._shown is None:
            raise Unavailable("the application starts anew: log and database are not open yet")
        return self._shown

    def application(self) -> web.Application:
        """The aiohttp application."""
        application = web.Application(middlewares=[self._guarded])
        application.router.add_get("/", self._root)
        pages: dict[str, tuple[str, _Values]] = {
            "/levels": ("levels.html", lambda r: levels_page(self._past, r.query)),
            "/o/{name:.+}": ("object.html", lambda r: object_page(self._past, r.match_info["name"], r.query)),
            _DECISION: ("decision.html", lambda r: decision_page(self._past, _ordinal(r), self._code)),
            f"{_DECISION}/again": ("again.html", lambda r: again_page(self._past, self._again, _ordinal(r), r.query)),
            "/again": ("again.html", lambda r: again_page(self._past, self._again, 0, r.query)),
            "/what-if": ("whatif.html", lambda r: what_if_page(self._past, self._again, r.query)),
            "/fields": ("fields.html", lambda r: fields_page(self._past, r.query)),
        }
        for path, page in pages.items():
            application.router.add_get(path, partial(self._made, *page))
        application.router.add_get("/flow", self._flow)
        application.router.add_get("/find", self._find)
        application.router.add_get("/live", self._live)
        application.router.add_get("/assets/{name}", self._asset)
        return application

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Answer) -> web.StreamResponse:
        """Refuse strangers, and turn errors into pages."""
        self._asked += 1
        try:
            if host := strange_name(request.headers, self._names):
                raise web.HTTPForbidden(
                    text=f"these pages are not {host}: ask by address, or start them with --name {host}"
                )
            if is_of_a_page(request.headers) and not _is_link(request):
                raise web.HTTPForbidden(text="these pages answer no pages of other servers")
            response = await handler(request)
        except web.HTTPRedirection:
            raise
        except web.HTTPException as refused:
            why = refused.text or refused.reason
            if why == f"404: {refused.reason}":
                why = f"there is no page {request.path}"
            response = self._refusal(request, refused.status, why)
        except ConfigurationError as error:
            response = self._refusal(request, 400, str(error))
        except LevelogError as error:
            log.warning("%s: %s", request.path, error)
            response = self._refusal(request, 503, str(error))
        finally:
            self._asked -= 1
            self._is_idle.set()
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    def _refusal(self, request: web.Request, status: int, why: str) -> web.Response:
        return self._page(request, "refusal.html", {"why": why, "status": status}, status=status)

    def _page(self, request: web.Request, template: str, values: dict[str, Any], *, status: int = 200) -> web.Response:
        shown = self._shown
        is_live = not isinstance(shown, BundlePast)
        frame = {
            "name": shown.name if shown is not None else "",
            "is_live": is_live,
            "renews": is_live,
            "code": self._code.name if self._code is not None else "",
            "here": request.path,
            "comes_back": "",
        }
        body = rendered(template, frame | values)
        tag = f'"{sha256(body).hexdigest()[:20]}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if status == 200 and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, status=status, content_type="text/html", charset="utf-8", headers=headers)

    async def _root(self, _: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("/levels")

    async def _made(self, template: str, values: _Values, request: web.Request) -> web.StreamResponse:
        if (found := await values(request)) is not None:
            return self._page(request, template, found)
        if name := request.match_info.get("name", ""):
            raise web.HTTPNotFound(text=f"{self._past.source.name} holds no record of {name}")
        raise web.HTTPNotFound(text=f"there is no decision {_ordinal(request)}; those of long ago are not kept")

    async def _flow(self, request: web.Request) -> web.StreamResponse:
        if not isinstance(self._past, LivePast):
            raise web.HTTPNotFound(text="nothing flows in a bundle")
        return self._page(request, "flow.html", await flow_page(self._past))

    async def _find(self, request: web.Request) -> web.StreamResponse:
        """Lead to the object that a text names, in full or by its end."""
        asked = request.query.get("q", "").strip()
        keys = [each.key for each in await chosen(self._past.source, [asked]) if each.key is not None] if asked else []
        if len(keys) == 1:
            raise web.HTTPFound(object_path(str(keys[0])))
        if not keys:
            raise web.HTTPNotFound(text=f"{asked or 'nothing'} names no one object: write its name, or how it ends")
        return self._page(request, "found.html", {"asked": asked, "names": sorted(map(str, keys))})

    async def _live(self, _: web.Request) -> web.StreamResponse:
        if isinstance(self._shown, BundlePast):
            raise web.HTTPNotFound(text="nothing more happens in a file")
        try:
            if self._position is None:
                raise Unavailable("the application starts anew")
            return web.Response(text=await self._position.read(), headers={"Cache-Control": "no-store"})
        except LevelogError as error:  # no warning, as pages ask again each second
            return web.Response(status=503, text=" ".join(str(error).split()))

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in _ASSETS:
            raise web.HTTPNotFound(text=f"there is no file {name}")
        headers = {"Cache-Control": "max-age=300"}
        return web.Response(body=self._assets[name], content_type=_ASSETS[name], charset="utf-8", headers=headers)


def _ordinal(request: web.Request) -> int:
    return int(request.match_info["ordinal"])


def _is_link(request: web.Request) -> bool:
    """Tell whether somebody follows a link from elsewhere, or typed the address: it only reads."""
    headers = request.headers
    is_document = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
    return request.method in ("GET", "HEAD") and is_document and "Origin" not in headers


@asynccontextmanager
async def serving(server: PageServer, host: str, port: int, *, is_any_port: bool = False) -> AsyncGenerator[str]:
    """Serve the pages while the context is open; yields their address.

    Where the port is taken, `is_any_port` takes a free one. Raises ConfigurationError if the address cannot be had.
    """
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host or None, port).start()
        except OSError as error:
            if not (is_any_port and error.errno == errno.EADDRINUSE):
                raise cannot_listen("the pages", f"{host}:{port}", error) from error
            await web.TCPSite(runner, host or None, 0).start()
        shown = host if host not in ("", "0.0.0.0", "::") else "127.0.0.1"  # noqa: S104 - compared, not bound
        yield f"http://{f'[{shown}]' if ':' in shown else shown}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
