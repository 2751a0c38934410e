"""Processors that share the work of one operator: what a change costs, how even the shares are, and who takes over."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from itertools import count
from statistics import median
from typing import Final

import asyncpg
from msgspec import Struct
from rich.console import Console

from bench.changes import load, unsettle, until_idle, until_written
from bench.programs import OPERATORS, SERVERS, Programs, running, split, used, used_by
from bench.servers import Servers
from bench.tables import print_compared
from rigs.processes import Process
from rigs.waiting import until

COUNTS: Final = (1, 2, 4)
RATE: Final = 40
CHANGES: Final = 800
GOES: Final = {signal.SIGKILL: "killed", signal.SIGTERM: "told"}


class Round(Struct, frozen=True, kw_only=True):
    """What one number of processors did in one round."""

    cpu_ms: float
    """Of all processors, a change."""
    most: float
    """What the busiest processor did, as a multiple of the mean."""
    memory_mb: float
    """Of the largest processor."""
    p50_ms: float
    servers_ms: dict[str, float]
    """CPU of each server, a change."""
    gone: dict[str, float]
    """Seconds until the others held its partitions, after a processor was killed or told to end."""
    waited: dict[str, float]
    """Seconds that the slowest change took from then on."""


async def run(servers: Servers, console: Console, objects: int, rounds: int) -> None:
    """Measure and print."""
    await servers.create_webs(objects)
    replicas = count(2, 100_000)
    done: dict[int, list[Round]] = {number: [] for number in COUNTS}
    for number in range(rounds):
        for processors in COUNTS:
            done[processors].append(await _round(servers, processors, objects, next(replicas)))
            console.print(f"round {number + 1}: {processors} processors: {json.dumps(_shown(done[processors][-1]))}")
    columns = {
        str(processors): {what: median(_shown(one)[what] for one in each) for what in _shown(each[0])}
        for processors, each in done.items()
    }
    print_compared(console, f"{objects} objects of 3 KB, medians of {rounds}", columns)


def _shown(one: Round) -> dict[str, float]:
    return {
        f"CPU of the processors a change at {RATE}/s, ms": one.cpu_ms,
        "the busiest, of the mean": one.most,
        "memory of the largest, MB": one.memory_mb,
        f"{RATE} changes/s: p50, ms": one.p50_ms,
        **{f"CPU of {name} a change, ms": spent for name, spent in one.servers_ms.items()},
        **{f"{how}: its partitions are taken after, s": seconds for how, seconds in one.gone.items()},
        **{f"{how}: the slowest change from then on, s": seconds for how, seconds in one.waited.items()},
    }


async def _round(servers: Servers, processors: int, objects: int, first: int) -> Round:
    await unsettle(servers, objects, first)
    async with running(servers, split(OPERATORS / "statuses.py", processors)) as programs:
        sharing = programs.processes[2:]
        await _until_shared(programs, sharing)
        await until_written(servers, programs, first)
        await until_idle()
        servers_before = used().cpu_seconds
        before = [used_by(each.pid).cpu_seconds for each in sharing]
        timed = await load(servers, objects, CHANGES, RATE, first + 1)
        await until_idle()
        spent = [used_by(each.pid).cpu_seconds - began for each, began in zip(sharing, before, strict=True)]
        servers_after = used().cpu_seconds
        servers_ms = {each: 1000 * (servers_after[each] - servers_before[each]) / CHANGES for each in sorted(SERVERS)}
        memory = max(used_by(each.pid).memory_mb for each in sharing)
        gone, waited, following = dict[str, float](), dict[str, float](), first + 1 + CHANGES
        for how, what in GOES.items():
            if len(sharing) == 1:
                break
            leaving = sharing.pop()
            began = time.monotonic()
            loading = asyncio.create_task(load(servers, objects, 8 * RATE, RATE, following))
            os.kill(leaving.pid, how)
            await _until_shared(programs, sharing, seconds=60)
            gone[what] = time.monotonic() - began
            waited[what] = max((await loading).seen) / 1000
            following += 8 * RATE
            programs.processes.remove(leaving)
            leaving.stop()
            if processors == 2:
                break
        return Round(
            cpu_ms=1000 * sum(spent) / CHANGES,
            most=max(spent) * processors / sum(spent),
            memory_mb=memory,
            p50_ms=timed.p50,
            servers_ms=servers_ms,
            gone=gone,
            waited=waited,
        )


async def _until_shared(programs: Programs, sharing: Sequence[Process], *, seconds: float = 120) -> None:
    """Wait until these processors hold all partitions, each its share."""
    connection = await asyncpg.connect(programs.database_url.replace("postgresql+asyncpg:", "postgresql:"))
    pids = {str(each.pid) for each in sharing}

    async def is_shared() -> bool:
        rows = await connection.fetch("SELECT owner, count(*) AS held FROM leases GROUP BY owner")
        held = {row["owner"].split("-")[-2] if row["owner"] else "": row["held"] for row in rows}
        return held.keys() == pids and max(held.values()) - min(held.values()) <= 1

    try:
        await until(is_shared, f"{len(pids)} processors that share all partitions", seconds=seconds)
    finally:
        await connection.close()
