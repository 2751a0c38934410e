"""Changes of fields that nothing reads: how often handlers are called for them, and what is written to the API."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct
from rich.console import Console
from rich.table import Table

from bench.installation import Installation
from bench.kopfprocess import OPERATORS, Kopf, is_installed
from bench.servers import Servers

KINDS: Final = ("annotation", "status")
QUIET_SECONDS: Final = 5.0
"""So long nothing is called before a phase counts as over; Kopf's longest wait of its own is 5 s."""


class Counted(Struct, frozen=True):
    """What an operator did during the noise."""

    calls: int
    writes: int


async def run(servers: Servers, console: Console, objects: int, count: int) -> None:
    """Send `count` changes of an annotation, and as many of a status field, to Webs; print calls and writes."""
    webs = range(objects)
    await servers.create_webs(objects)
    rows: dict[str, dict[str, Counted]] = {}
    async with Installation(servers, OPERATORS / "statuses.py") as levelog:
        levelog.start("ingest", "process", "actuate")
        rows["levelog"] = await _measure(servers, webs, count, levelog.calls, levelog.check)
    for variant in ("event", "update", "tuned", "field") if is_installed() else ():
        with Kopf(servers, "kopf_statuses.py", variant) as kopf:

            async def calls(kopf: Kopf = kopf) -> int:
                return kopf.calls

            rows[f"Kopf, {variant}"] = await _measure(servers, webs, count, calls, kopf.check)
    table = Table(title=f"{count} changes of fields that nothing reads, over {len(webs)} Webs", title_justify="left")
    table.add_column("")
    for kind in KINDS:
        for what in ("calls", "writes"):
            table.add_column(f"{kind}: {what}", justify="right")
    for name, found in rows.items():
        table.add_row(name, *(str(number) for kind in KINDS for number in (found[kind].calls, found[kind].writes)))
    console.print(table)
    if not is_installed():
        console.print("Kopf is not installed in .venv-kopf: only levelog was measured")


async def _measure(
    servers: Servers, webs: range, count: int, calls: Callable[[], Awaitable[int]], check: Callable[[], None]
) -> dict[str, Counted]:
    """Bring every status up to date, then count what the noise leads to."""
    wanted = max(number or 0 for number in (await servers.statuses()).values()) + 1
    await servers.for_each(webs, lambda number: servers.patch_web(number, {"spec": {"replicas": wanted}}))
    async with asyncio.timeout(300):
        while set((await servers.statuses()).values()) != {wanted}:
            check()
            await asyncio.sleep(1)
    await _quiet(calls, check)
    found: dict[str, Counted] = {}
    for kind in KINDS:
        calls_before, writes_before = await calls(), (await servers.writes()).total()

        async def disturb(number: int, kind: str = kind) -> None:
            web = webs[number % len(webs)]
            if kind == "annotation":
                await servers.patch_web(web, {"metadata": {"annotations": {"example.com/noise": f"{wanted}-{number}"}}})
            else:
                await servers.patch_web(web, {"status": {"observedGeneration": number}}, subresource="status")

        await servers.for_each(range(count), disturb)
        await _quiet(calls, check)
        writes = (await servers.writes()).total() - writes_before - count
        found[kind] = Counted(await calls() - calls_before, writes)
    return found


async def _quiet(calls: Callable[[], Awaitable[int]], check: Callable[[], None]) -> None:
    """Wait until nothing has been called for a while."""
    loop = asyncio.get_running_loop()
    seen, since = await calls(), loop.time()
    while loop.time() - since < QUIET_SECONDS:
        check()
        await asyncio.sleep(0.5)
        if (now := await calls()) != seen:
            seen, since = now, loop.time()
