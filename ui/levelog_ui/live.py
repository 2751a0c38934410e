"""The position of log and decisions: open pages ask for it each second, and for themselves when it has changed."""

import asyncio
from typing import Final

from levelog_store.look.progress import read_newest_ordinal
from levelog_ui.past import LivePast

_PAUSE_SECONDS: Final = 1.0


class LogPosition:
    """Reads how far things are, at most once a second however many pages are open."""

    def __init__(self, past: LivePast) -> None:
        self._past = past
        self._read_at = 0.0
        self._position = ""
        self._lock = asyncio.Lock()

    async def read(self) -> str:
        """The newest record and the newest decision, as of at most a second ago. Raises Unavailable."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if not self._position or now - self._read_at >= _PAUSE_SECONDS:
                async with self._past.database.reading() as connection:
                    ordinal = await read_newest_ordinal(connection)
                self._position = f"{await self._past.stream.last_sequence()} {ordinal}"
                self._read_at = now
        return self._position
