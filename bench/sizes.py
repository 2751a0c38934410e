"""What the number of objects costs, side by side: a start with nothing, an idle minute, a restart, changed code.

Every object is as it should be, but for the last of the list: once its status is written, a program does its work.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from msgspec import Struct
from rich.console import Console

from bench.changes import until_idle
from bench.programs import Peer, Programs, all_peers, running, used
from bench.servers import Servers
from bench.tables import print_compared

IDLE_SECONDS: Final = 60
PATIENCE: Final = 900
"""Seconds for a first list, and a write for each of its objects."""


class Start(Struct, frozen=True):
    """One start of a peer's programs."""

    seconds: float
    """Until the one write was seen."""
    idle_seconds: float
    """Until nothing was left to be done."""
    cpu_seconds: float
    memory_mb: float


async def run(servers: Servers, console: Console, sizes: Sequence[int], names: Sequence[str]) -> None:
    """Measure with a growing number of Webs, and print a table for each."""
    peers = [peer for peer in all_peers() if not names or any(name in peer.name for name in names)]
    replicas = count(2_000_000)
    there = len(await servers.statuses())
    for size in sizes:
        await servers.create_webs(size - there, first=there)
        there = size
        async with running(servers, peers[0]) as programs, asyncio.timeout(PATIENCE):
            while None in (await servers.statuses()).values():
                programs.check()
                await asyncio.sleep(1)
        columns: dict[str, dict[str, float]] = {}
        for peer in peers:
            columns[peer.name] = await _measured(servers, peer, size - 1, replicas)
            console.print(f"{size} objects: {peer.name}")
        print_compared(console, f"{size} objects of 3 KB, one of which needs a write", columns)


async def _measured(servers: Servers, peer: Peer, last: int, replicas: Iterator[int]) -> dict[str, float]:
    wanted = next(replicas)
    await servers.patch_web(last, {"spec": {"replicas": wanted}})
    async with running(servers, peer) as programs:
        first = await _started(servers, programs, last, wanted)
        before = used().operator_seconds
        await asyncio.sleep(IDLE_SECONDS)
        idle = used().operator_seconds - before
        again = await _restarted(servers, programs, last, next(replicas))
        programs.change()
        changed = await _restarted(servers, programs, last, next(replicas))
    return {
        "first start: its status is written after, s": first.seconds,
        "first start: idle after, s": first.idle_seconds,
        "first start: CPU, s": first.cpu_seconds,
        "first start: memory, MB": first.memory_mb,
        "an idle minute: CPU, ms/s": 1000 * idle / IDLE_SECONDS,
        "restart: its status is written after, s": again.seconds,
        "restart: CPU, s": again.cpu_seconds,
        "restart: memory, MB": again.memory_mb,
        "changed code: idle after, s": changed.idle_seconds,
        "changed code: CPU, s": changed.cpu_seconds,
        "changed code: memory, MB": changed.memory_mb,
    }


async def _restarted(servers: Servers, programs: Programs, number: int, wanted: int) -> Start:
    programs.stop()
    await servers.patch_web(number, {"spec": {"replicas": wanted}})
    programs.start()
    return await _started(servers, programs, number, wanted)


async def _started(servers: Servers, programs: Programs, number: int, wanted: int) -> Start:
    began = time.monotonic()
    async with asyncio.timeout(PATIENCE):
        while await servers.status(number) != wanted:
            programs.check()
            await asyncio.sleep(0.05)
        seconds = time.monotonic() - began
        await until_idle()
    programs.check()
    now = used()
    return Start(seconds, time.monotonic() - began, now.operator_seconds, now.operator_mb)
