"""Pages as they come over HTTP, without a browser."""

import re
from collections.abc import Mapping
from html import unescape
from typing import NamedTuple

import aiohttp


class Page(NamedTuple):
    """An answer."""

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def shown(self) -> str:
        """What is read in its main part, on one line."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.text.partition("<main")[2])).split())


async def get(url: str, **headers: str) -> Page:
    """Ask once, and follow nothing."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session,
        session.get(url, headers=headers, allow_redirects=False) as response,
    ):
        return Page(response.status, await response.text(), response.headers)
