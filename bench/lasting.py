"""Many timers and daemons in one process: memory, CPU while none is due, CPU of a call, and how late calls are."""

import asyncio
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from statistics import quantiles
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.changes import until_idle
from bench.kopfprocess import OPERATORS
from bench.programs import Peer, Programs, levelog, running, used
from bench.servers import Servers

IDLE_SECONDS: Final = 60


async def run(servers: Servers, console: Console, timers: int, daemons: int, every: timedelta) -> None:
    """Measure and print; the first Webs have daemons, too."""
    await servers.create_webs(timers)

    async def ask_for_daemon(number: int) -> None:
        await servers.patch_web(number, {"spec": {"replicas": 2}})

    await servers.for_each(range(daemons), ask_for_daemon)
    table = Table(title=f"{timers} timers of {every}, {daemons} daemons", title_justify="left")
    table.add_column("")
    columns: list[dict[str, str]] = []
    for peer in levelog(OPERATORS / "lasting.py", {"BENCH_EVERY": str(every.total_seconds())}):
        table.add_column(peer.name, justify="right")
        columns.append(await _measured(servers, peer, timers, daemons, every))
        console.print(f"timers and daemons: {peer.name}")
    for what in columns[0]:
        table.add_row(what, *(column[what] for column in columns))
    console.print(table)


async def _measured(servers: Servers, peer: Peer, timers: int, daemons: int, every: timedelta) -> dict[str, str]:
    began = time.monotonic()
    async with running(servers, peer) as programs:
        await _until_called(programs, timers, daemons, 1)
        seconds = time.monotonic() - began
        await until_idle()
        memory, before = used().operator_mb, used().operator_seconds
        await asyncio.sleep(IDLE_SECONDS)
        idle = used().operator_seconds - before
        first = _calls(programs.calls)
        if min(first.values()) + every.total_seconds() < time.time():
            raise RuntimeError("timers came due before they were measured at rest: give them more time")
        before = used().operator_seconds
        await _until_called(programs, timers, daemons, 2)
        await until_idle()
        spent = used().operator_seconds - before
        late = [at - first[name] - every.total_seconds() for name, at in _calls(programs.calls).items()]
        cuts = quantiles(late, n=100)
        return {
            "each is called once after, s": f"{seconds:.1f}",
            "memory, MB": f"{memory:.0f}",
            "CPU while none is due, ms/s": f"{1000 * idle / IDLE_SECONDS:.1f}",
            "CPU of a timer's call, ms": f"{1000 * spent / timers:.2f}",
            "later than due: p50, p99, s": f"{cuts[49]:.2f}, {cuts[98]:.2f}",
        }


async def _until_called(programs: Programs, timers: int, daemons: int, times: int) -> None:
    """Wait until each timer was called so often, and each daemon once."""
    async with asyncio.timeout(1800):
        while True:
            programs.check()
            counts = Counter(line.rpartition(" ")[0] for line in _lines(programs.calls))
            ticks = [count for name, count in counts.items() if name.startswith("tick ")]
            if len(ticks) == timers and min(ticks) >= times and len(counts) == timers + daemons:
                return
            await asyncio.sleep(1)


def _lines(calls: Path) -> list[str]:
    return calls.read_text().splitlines() if calls.exists() else []


def _calls(calls: Path) -> dict[str, float]:
    """When each timer was called last."""
    found: dict[str, float] = {}
    for line in _lines(calls):
        kind, name, at = line.split()
        if kind == "tick":
            found[name] = float(at)
    return found
