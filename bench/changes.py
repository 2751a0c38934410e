"""From a change to its written status, side by side: at steady rates, all at once, and after the first list."""

import asyncio
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct
from rich.console import Console

from bench.load import Timed
from bench.pictures import save_bars
from bench.programs import Peer, Programs, Used, all_peers, running, used
from bench.servers import Servers
from bench.tables import print_compared

RATES = (20, 100, 200)
SECONDS = 15
"""How long each rate is held."""
BURST = 2_000
"""Changes, 400 a second."""
BURST_RATE = 400
IDLE_CPU = 0.1
"""Of a core."""


class Load(Struct, frozen=True):
    """One load, and what it cost."""

    timed: Timed
    cpu_ms: float
    """Of the operator's programs, a change."""
    servers_ms: float
    """Of the servers, a change."""


class Round(Struct, frozen=True):
    """What one peer did in one round."""

    listed_seconds: float
    """From the start to all objects written."""
    memory_mb: float
    loads: dict[int, Load]
    """By rate."""


async def run(
    servers: Servers, console: Console, objects: int, rounds: int, names: Sequence[str], picture: Path | None
) -> None:
    """Measure and print; `names` are parts of the names of those to be measured, none for all."""
    peers = [peer for peer in all_peers() if not names or any(name in peer.name for name in names)]
    await servers.create_webs(objects)
    replicas = count(2, 1_000_000)
    done: dict[str, list[Round]] = {peer.name: [] for peer in peers}
    for number in range(rounds):
        for peer in peers:
            done[peer.name].append(await _round(servers, peer, objects, next(replicas)))
            console.print(f"round {number + 1}: {peer.name}")
    columns = {name: _figures(each) for name, each in done.items()}
    print_compared(console, f"{objects} objects of 3 KB, medians of {rounds}", columns)
    if picture is not None:
        save_bars(picture, {what: {n: each[what] for n, each in columns.items()} for what in columns[peers[0].name]})


async def _round(servers: Servers, peer: Peer, objects: int, first: int) -> Round:
    await unsettle(servers, objects, first)
    loads: dict[int, Load] = {}
    async with running(servers, peer) as programs:
        began = time.monotonic()
        await until_written(servers, programs, first)
        listed_seconds = time.monotonic() - began
        await until_idle()  # what the first list asked for is no part of a change's cost
        first += 1
        for rate in (*RATES, BURST_RATE):
            changes = BURST if rate == BURST_RATE else rate * SECONDS
            before = used()
            timed = await load(servers, objects, changes, rate, first)
            first += changes
            loads[rate] = _cost(timed, before, used(), changes)
            programs.check()
        return Round(listed_seconds, used().operator_mb, loads)


async def unsettle(servers: Servers, objects: int, replicas: int) -> None:
    """Let each object need a write."""

    async def change(number: int) -> None:
        await servers.patch_web(number, {"spec": {"replicas": replicas}})

    await servers.for_each(range(objects), change)


async def until_written(servers: Servers, programs: Programs, replicas: int) -> None:
    async with asyncio.timeout(300):
        while set((await servers.statuses()).values()) != {replicas}:
            programs.check()
            await asyncio.sleep(0.2)


async def until_idle() -> None:
    """Wait until what is measured has nothing left to do."""
    spent = IDLE_CPU
    while spent >= IDLE_CPU:
        before = used()
        await asyncio.sleep(1)
        spent = used().operator_seconds - before.operator_seconds


async def load(
    servers: Servers, objects: int, changes: int, rate: int, first: int, namespace: str = "default"
) -> Timed:
    """Have a process change objects, one after the other; see bench/load.py."""
    process = await loading(servers, objects, changes, rate, first, namespace)
    printed, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the load of {rate}/s ended with status {process.returncode}")
    return msgspec.json.decode(printed, type=Timed)


async def loading(
    servers: Servers, objects: int, changes: int, rate: int, first: int, namespace: str
) -> asyncio.subprocess.Process:
    """A process that changes objects."""
    asked = (servers.control_plane.kubeconfig, namespace, objects, changes, rate, first)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.load", *map(str, asked)), stdout=asyncio.subprocess.PIPE
    )


def _cost(timed: Timed, before: Used, after: Used, changes: int) -> Load:
    operator = after.operator_seconds - before.operator_seconds
    servers = after.servers_seconds - before.servers_seconds
    return Load(timed, 1000 * operator / changes, 1000 * servers / changes)


def _figures(rounds: Sequence[Round]) -> dict[str, float]:
    """Medians."""
    found = {"first list and a write for each, s": median(each.listed_seconds for each in rounds)}
    for rate in RATES:
        found[f"{rate} changes/s: p50, ms"] = median(each.loads[rate].timed.p50 for each in rounds)
        found[f"{rate} changes/s: p99, ms"] = median(each.loads[rate].timed.p99 for each in rounds)
    burst = median(each.loads[BURST_RATE].timed.seconds for each in rounds)
    found[f"{BURST} changes at {BURST_RATE}/s: all done after, s"] = burst
    for rate in (*RATES, BURST_RATE):
        found[f"CPU of the operator per change at {rate}/s, ms"] = median(each.loads[rate].cpu_ms for each in rounds)
        found[f"CPU of all servers per change at {rate}/s, ms"] = median(each.loads[rate].servers_ms for each in rounds)
    return {**found, "memory of the operator, MB": median(each.memory_mb for each in rounds)}
