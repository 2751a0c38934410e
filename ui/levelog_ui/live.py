"""Tells open pages that something happened: server-sent events, each with the number of the newest record as its id."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web
from msgspec import Struct

from levelog_base.errors import LevelogError, Unavailable
from levelog_store.look.progress import read_newest_ordinal
from levelog_ui.past import LivePast

_PAUSE_SECONDS: Final = 1.0
_ALIVE_SECONDS: Final = 15.0
"""A proxy may end a connection on which nothing comes for a minute."""


class Beat(Struct, frozen=True):
    """The ends of the log and of the decisions."""

    sequence: int
    ordinal: int
    """Of the newest decision."""


class LogProgress:
    """Reads how far things are, at most once a second however many pages are open."""

    def __init__(self, past: LivePast) -> None:
        self._past = past
        self._read_at = 0.0
        self._beat = Beat(0, 0)
        self._lock = asyncio.Lock()

    async def beat(self) -> Beat:
        """As of at most a second ago. Raises Unavailable."""
        async with self._lock:
            if (now := asyncio.get_running_loop().time()) - self._read_at >= _PAUSE_SECONDS or not self._read_at:
                async with self._past.database.reading() as connection:
                    ordinal = await read_newest_ordinal(connection)
                self._beat = Beat(await self._past.stream.last_sequence(), ordinal)
                self._read_at = now
        return self._beat


async def stream_changes(
    request: web.Request, current: Callable[[], LogProgress | None], headers: Mapping[str, str]
) -> web.StreamResponse:
    """Send an event whenever records or decisions have come, until the page is closed.

    A page that comes back with Last-Event-ID gets one at once if it has missed records. `current` is what is shown now.
    """
    response = web.StreamResponse(
        headers={**headers, "Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
    await response.prepare(request)
    loop = asyncio.get_running_loop()
    last = request.headers.get("Last-Event-ID", "")
    seen: Beat | None = None
    sent_at = loop.time()
    try:
        await response.write(b"retry: 1000\n")
        while True:
            try:
                if (progress := current()) is None:
                    raise Unavailable("the application starts anew")
                beat = await progress.beat()
            except LevelogError as error:
                seen, last = None, ""  # the page is told as soon as it goes on
                await response.write(f"event: lost\ndata: {' '.join(str(error).split())}\n\n".encode())
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if beat != seen and (seen is not None or last != str(beat.sequence)):
                sent_at = loop.time()
                await response.write(f"id: {beat.sequence}\nevent: log\ndata: {beat.ordinal}\n\n".encode())
            elif loop.time() - sent_at >= _ALIVE_SECONDS:
                sent_at = loop.time()
                await response.write(b": alive\n\n")
            seen = beat
            await asyncio.sleep(_PAUSE_SECONDS)
    except ConnectionError:
        pass  # the page was closed
    return response
