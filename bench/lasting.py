"""Many timers and daemons in one process: memory, CPU while none is due, CPU of a call, and how late calls are."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from statistics import quantiles
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.changes import until_idle
from bench.programs import OPERATORS, Peer, Programs, levelog, running, used
from bench.servers import Servers

IDLE_SECONDS: Final = 60
MINUTES: Final = 3
"""How many times each timer without records is called while it is measured."""


async def run(
    servers: Servers,
    console: Console,
    timers: int,
    daemons: int,
    every: timedelta,
    wanted: Sequence[str],
    *,
    is_recorded: bool,
) -> None:
    """Measure and print; the first Webs have daemons, too. `wanted`: peers, by a part of their names; empty: all."""
    await servers.create_webs(timers)

    async def ask_for_daemon(number: int) -> None:
        await servers.patch_web(number, {"spec": {"replicas": 2}})

    await servers.for_each(range(daemons), ask_for_daemon)
    kind = "timers" if is_recorded else "timers without records"
    table = Table(title=f"{timers} {kind} of {every}, {daemons} daemons", title_justify="left")
    table.add_column("")
    columns: list[dict[str, str]] = []
    env = {"BENCH_EVERY": str(every.total_seconds()), "BENCH_RECORDED": "yes" if is_recorded else "no"}
    for peer in levelog(OPERATORS / "lasting.py", env):
        if wanted and not any(each in peer.name for each in wanted):
            continue
        table.add_column(peer.name, justify="right")
        measured = _measured if is_recorded else _measured_unrecorded
        columns.append(await measured(servers, peer, timers, daemons, every))
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


async def _measured_unrecorded(
    servers: Servers, peer: Peer, timers: int, daemons: int, every: timedelta
) -> dict[str, str]:
    async with running(servers, peer) as programs:
        await _until_called(programs, timers, daemons, 2)  # all is begun then
        noted, before = len(_lines(programs.calls)), used().operator_seconds
        await asyncio.sleep(MINUTES * every.total_seconds())
        spent = used().operator_seconds - before
        lines = [line.split() for line in _lines(programs.calls)[noted:]]
        cuts = quantiles([float(at) - float(due) for _, _, at, due in lines], n=100)
        if abs(len(lines) - MINUTES * timers) > timers / 10:
            raise RuntimeError(f"{len(lines)} calls in {MINUTES} times {every}, for {timers} timers")
        return {
            "memory, MB": f"{used().operator_mb:.0f}",
            "calls": f"{len(lines)}",
            "CPU of all, ms/s": f"{1000 * spent / MINUTES / every.total_seconds():.1f}",
            "later than due: p50, p99, s": f"{cuts[49]:.3f}, {cuts[98]:.3f}",
        }


async def _until_called(programs: Programs, timers: int, daemons: int, times: int) -> None:
    """Wait until each timer was called so often, and each daemon once."""
    async with asyncio.timeout(1800):
        while True:
            programs.check()
            counts = Counter(tuple(line.split()[:2]) for line in _lines(programs.calls))
            ticks = [count for (kind, _), count in counts.items() if kind in ("tick", "sweep")]
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
