"""The first list of many objects into the durable log, and one status written for each of them."""

import asyncio
import time
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.installation import Installation
from bench.servers import Servers
from levelog.errors import Unavailable
from levelog.wire.records import SyncFinished, SyncStarted
from levelog_kube.discovery import cluster_uid
from levelog_log.reader import Reader
from levelog_log.stream import open_stream
from levelog_log.transport.connection import connect as connect_nats


async def run(servers: Servers, levelog: Installation, console: Console, count: int) -> None:
    """Measure and print."""
    created = await servers.create_webs(count)
    console.print(f"{count} Webs of 3 KB created in {created:.1f} s")
    before = await servers.writes()
    levelog.start("ingest")
    list_seconds, records = await _listed(servers, levelog, count)
    started = time.monotonic()
    levelog.start("process", "actuate")
    peak = dict.fromkeys(levelog.processes, 0.0)
    while await levelog.levels("in_sync") < count:
        for role, usage in levelog.usage().items():
            peak[role] = max(peak[role], usage.memory_mb)
        levelog.check()
        await asyncio.sleep(0.2)
    seconds = time.monotonic() - started
    table = Table(title=f"{count} objects that each need one write", title_justify="left")
    for name in ("what", "value"):
        table.add_column(name, justify="left" if name == "what" else "right")
    table.add_row("list into the durable log", f"{list_seconds:.2f} s, {records / list_seconds:,.0f} records/s")
    table.add_row("start of processor and actuator to all written and in sync", f"{seconds:.1f} s")
    table.add_row("writes a second", f"{count / seconds:,.0f}")
    for name, number in (await servers.writes() - before).items():
        table.add_row(f"requests counted by the API server: {name}", f"{number}")
    for role, usage in levelog.usage().items():
        table.add_row(f"{role}: CPU, most memory", f"{usage.cpu_seconds:.1f} s, {peak[role]:.0f} MB")
    console.print(table)


async def _listed(servers: Servers, levelog: Installation, count: int) -> tuple[float, int]:
    """Seconds from the beginning of the list to its end being durable, and the records in between."""
    async with await connect_nats(levelog.nats.url) as connection:
        cluster = await cluster_uid(servers.client)
        async with asyncio.timeout(120):
            while not (stream := await _stream(connection, cluster)):  # noqa: ASYNC110 - the log has no event for it
                await asyncio.sleep(0.05)
            records = 0
            begun: datetime | None = None
            async with Reader(stream) as reader:
                while True:
                    for logged in await reader.next_batch():
                        match logged.record:
                            case SyncStarted(time=at):
                                begun = begun or at
                            case SyncFinished(time=at):
                                if begun is None or records < count:
                                    raise RuntimeError(f"the list ended after {records} of {count} objects")
                                return (at - begun).total_seconds(), records
                            case _:
                                records += 1


async def _stream(connection: Any, cluster: Any) -> Any:
    try:
        return await open_stream(connection, cluster)
    except Unavailable:
        return None
