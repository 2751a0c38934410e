"""Several operators on one resource: processes of their own, but for levelog, which runs them as one application."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from bench.changes import load, until_idle
from bench.programs import Peer, Programs, running, several, used
from bench.servers import PATIENCE, WEBS, Servers
from bench.tables import print_compared

COUNTS: Final = (3, 10)
RATE: Final = 20
CHANGES: Final = 300


class _Web(msgspec.Struct):
    class Spec(msgspec.Struct):
        replicas: int

    spec: Spec
    status: dict[str, int] = {}


class _Webs(msgspec.Struct):
    items: list[_Web]


_webs: Final = msgspec.json.Decoder(_Webs)


async def run(servers: Servers, console: Console, objects: int, names: Sequence[str]) -> None:
    """Measure and print a table for each number of operators."""
    await servers.create_webs(objects)
    first = 2
    for number in COUNTS:
        fields = ["replicas", *(f"replicas_{each}" for each in range(1, number))]
        with tempfile.TemporaryDirectory(prefix="levelog-bench-") as folder:
            peers = several(Path(folder), fields)
            columns: dict[str, dict[str, float]] = {}
            for peer in peers:
                if names and not any(name in peer.name for name in names):
                    continue
                columns[peer.name] = await _measured(servers, peer, objects, fields, first)
                first += CHANGES
                console.print(f"{number} operators: {peer.name}")
        print_compared(console, f"{number} operators, {objects} objects of 3 KB", columns)


async def _measured(servers: Servers, peer: Peer, objects: int, fields: Sequence[str], first: int) -> dict[str, float]:
    watches = await servers.watches()
    async with running(servers, peer) as programs:
        await _until_written(servers, programs, fields)
        await until_idle()
        memory, before, writes = used().operator_mb, used(), await servers.writes()
        timed = await load(servers, objects, CHANGES, RATE, first)
        await _until_written(servers, programs, fields)
        await until_idle()
        after, written = used(), await servers.writes() - writes
        return {
            "memory, MB": memory,
            "watches": await servers.watches() - watches,
            "writes a change": written.total() / CHANGES - 1,
            f"{RATE} changes/s: p50 of the first, ms": timed.p50,
            f"{RATE} changes/s: p99 of the first, ms": timed.p99,
            "CPU of the operators a change, ms": 1000 * (after.operator_seconds - before.operator_seconds) / CHANGES,
            "CPU of the servers a change, ms": 1000 * (after.servers_seconds - before.servers_seconds) / CHANGES,
        }


async def _until_written(servers: Servers, programs: Programs, fields: Sequence[str]) -> None:
    async with asyncio.timeout(600):
        while True:
            programs.check()
            webs = _webs.decode((await servers.client.request("GET", WEBS, timeout=PATIENCE)).body).items
            if all(web.status.get(field) == web.spec.replicas for web in webs for field in fields):
                return
            await asyncio.sleep(0.5)
