"""How long an operator with one index takes to start, by the number of objects: it should be linear."""

import asyncio
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.installation import Installation
from bench.kopfprocess import OPERATORS, Kopf, is_installed
from bench.servers import Servers

MOST_FOR_KOPF = 4_000
"""Its start is quadratic: 4,000 objects take more than half a minute."""


async def run(servers: Servers, console: Console, counts: Sequence[int]) -> None:
    """Measure with a growing number of Webs, and print."""
    table = Table(title="start with one index, until each object has been handled", title_justify="left")
    names = ("objects", "levelog", "ms an object", "Kopf", "ms an object")
    for name in names:
        table.add_column(name, justify="right")
    there = len(await servers.statuses())
    for count in counts:
        await servers.create_webs(count - there, first=there)
        there = count
        seconds = [await _levelog(servers, count)]
        if is_installed() and count <= MOST_FOR_KOPF:
            seconds.append(await _kopf(servers, count))
        cells = [cell for each in seconds for cell in (f"{each:.1f} s", f"{each / count * 1000:.2f}")]
        table.add_row(str(count), *cells, *["-"] * (4 - len(cells)))
    console.print(table)


async def _levelog(servers: Servers, count: int) -> float:
    """From the start of ingest and processor, with an empty log and an empty database."""
    async with Installation(servers, OPERATORS / "indexed.py") as levelog, asyncio.timeout(300):
        started = time.monotonic()
        levelog.start("ingest", "process")
        while await levelog.levels("in_sync") < count:
            levelog.check()
            await asyncio.sleep(0.05)
        return time.monotonic() - started


async def _kopf(servers: Servers, count: int) -> float:
    started = time.monotonic()
    with Kopf(servers, "kopf_indexed.py") as kopf:
        async with asyncio.timeout(600):
            while kopf.calls < count:
                kopf.check()
                await asyncio.sleep(0.05)
        return time.monotonic() - started
