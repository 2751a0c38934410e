"""What a process that listens says of itself."""

import json
from typing import Final, NamedTuple

from rigs.levelog import Running
from rigs.waiting import until
from rigs.webpages import Page, get

ANYWHERE: Final = ("--listen", "127.0.0.1:0")
"""At a free port."""


class Listener(NamedTuple):
    """Where a process listens."""

    port: int

    @classmethod
    async def of(cls, running: Running) -> "Listener":
        """As its log says it."""
        message = json.loads(await running.says("listens at http://"))["message"]
        return cls(int(message.partition("http://")[2].split()[0].rpartition(":")[2]))

    async def asks(self, path: str, *, accepts: str = "") -> Page:
        """One request."""
        return await get(f"http://127.0.0.1:{self.port}{path}", Accept=accepts)

    async def is_ready(self, *, seconds: float = 90.0) -> Page:
        """Wait until it is."""
        return await self.says("/readyz", 200, "readyz check passed", seconds=seconds)

    async def says(self, path: str, status: int, text: str, *, seconds: float = 90.0) -> Page:
        """Wait until a probe has this status, and this text in it."""
        last = Page(0, "", {})

        async def said() -> bool:
            nonlocal last
            last = await self.asks(path)
            return last.status == status and text in last.text

        try:
            await until(said, f"{path} with status {status} and {text!r}", seconds=seconds, pause=0.1)
        except TimeoutError as error:
            raise AssertionError(f"{error}; last it was {last}") from None
        return last
