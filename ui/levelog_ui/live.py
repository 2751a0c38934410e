"""Tells open pages that something happened: server-sent events, each with the number of the newest record as its id."""

import asyncio
from collections.abc import Mapping
from typing import Final

from aiohttp import web
from msgspec import Struct

from levelog.errors import Unavailable
from levelog_store.look.progress import read_newest_ordinal
from levelog_ui.past import LivePast

_PAUSE_SECONDS: Final = 1.0
_ALIVE_SECONDS: Final = 15.0
"""A proxy may end a connection on which nothing comes for a minute."""


class Beat(Struct, frozen=True):
    """How far log and decisions are."""

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


async def stream_changes(request: web.Request, progress: LogProgress, headers: Mapping[str, str]) -> web.StreamResponse:
    """Send an event whenever records or decisions have come, until the page is closed.

    A page that comes back with Last-Event-ID gets one at once if it has missed records.
    """
    seen = await progress.beat()
    response = web.StreamResponse(
        headers={**headers, "Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
    await response.prepare(request)
    loop = asyncio.get_running_loop()
    last = request.headers.get("Last-Event-ID", "")
    quiet_since = loop.time()
    is_behind = last.isascii() and last.isdigit() and int(last[:20]) != seen.sequence
    try:
        await response.write(f"retry: 1000\n{_event(seen) if is_behind or not last else ''}\n".encode())
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            try:
                beat = await progress.beat()
            except Unavailable as error:
                await response.write(f"event: lost\ndata: {' '.join(str(error).split())}\n\n".encode())
                continue
            if beat != seen:
                seen, quiet_since = beat, loop.time()
                await response.write(_event(beat).encode())
            elif loop.time() - quiet_since >= _ALIVE_SECONDS:
                quiet_since = loop.time()
                await response.write(b": alive\n\n")
    except (ConnectionResetError, ConnectionError):
        return response  # the page was closed


def _event(beat: Beat) -> str:
    return f"id: {beat.sequence}\nevent: log\ndata: {beat.ordinal}\n\n"
