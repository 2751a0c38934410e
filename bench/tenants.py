"""What a noisy tenant costs a quiet one: a namespace edited twice a second, alone and beside one that never rests."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from statistics import quantiles
from typing import Final

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table
from sqlalchemy import select

from bench.changes import load, loading, shown, until_idle
from bench.programs import Programs, all_levelogs, running
from bench.servers import ALL_WEBS, PATIENCE, Servers
from levelog_store.connect.database import Database
from levelog_store.tables import intents

QUIET: Final = "quiet"
NOISY: Final = "noisy"
QUIET_OBJECTS: Final = 20
RATE: Final = 2
CHANGES: Final = 60
MOST_NOISE: Final = 10_000_000
"""Changes of the noisy namespace beside one peer."""
SETTLED_SECONDS: Final = 10
"""How long the noise lasts before the quiet namespace is edited."""


class _Web(Struct):
    class Replicas(Struct):
        replicas: int = 0

    spec: Replicas
    status: Replicas = msgspec.field(default_factory=Replicas)


class _Webs(Struct):
    items: list[_Web]


_webs: Final = msgspec.json.Decoder(_Webs)
_patch: Final = msgspec.json.Decoder(dict[str, dict[str, int]])


async def run(servers: Servers, console: Console, objects: int, names: Sequence[str]) -> None:
    """Measure and print; `objects` are those of the noisy namespace, `names` parts of the names of the peers."""
    for namespace in (QUIET, NOISY):
        body = msgspec.json.encode({"metadata": {"name": namespace}})
        await servers.client.request("POST", "/api/v1/namespaces", body=body)
    await servers.create_webs(QUIET_OBJECTS, namespace=QUIET)
    await servers.create_webs(objects, namespace=NOISY)
    first = 2
    for peer in all_levelogs():
        if not any(name in peer.name for name in names or ["PostgreSQL", "split"]):
            continue
        async with running(servers, peer) as programs:
            await _until_written(servers, programs)
            await until_idle()
            alone = await _measured(servers, programs, first)
            console.print(f"tenants: {peer.name}, alone: {alone}")
            table = Table(title=f"{peer.name}: {RATE} changes a second, beside {objects} at once")
            for name in ("in ms", "alone", "beside bursts"):
                table.add_column(name, justify="left" if name == "in ms" else "right")
            async with _noise(servers, objects, first + CHANGES):
                await asyncio.sleep(SETTLED_SECONDS)
                beside = await _measured(servers, programs, first + CHANGES)
            await _until_written(servers, programs)
            first += 2 * CHANGES + MOST_NOISE
            for what, value in alone.items():
                table.add_row(what, f"{value:,.0f}", shown(beside[what], value))
        console.print(table)
    console.print("Behind each figure: how many times that of the namespace alone.")


async def _measured(servers: Servers, programs: Programs, first: int) -> dict[str, float]:
    """Milliseconds from sending a change of the quiet namespace."""
    timed = await load(servers, QUIET_OBJECTS, CHANGES, RATE, first, QUIET)
    programs.check()
    found = {"answer of the API: p99": timed.answered_p99}
    if programs.database_url:
        decided = await _decided(programs.database_url, first)
        cuts = quantiles([(decided[n] - at) * 1000 for n, at in enumerate(timed.sent_at)], n=100)
        found |= {"level: p50": cuts[49], "level: p99": cuts[98]}
    return found | {"write: p50": timed.p50, "write: p99": timed.p99}


async def _decided(url: str, first: int) -> list[float]:
    """When each change from `first` on was decided on, by itself or with a later one of its object."""
    async with await Database.open(url, read_only=True) as database, database.reading() as connection:
        rows = await connection.execute(
            select(intents.c.body, intents.c.decided_at).where(intents.c.parent.contains(f"/{QUIET}/"))
        )
        found = {_patch.decode(body)["status"]["replicas"] - first: at.timestamp() for body, at in rows}
    return [next(found[n] for n in range(number, CHANGES, QUIET_OBJECTS) if n in found) for number in range(CHANGES)]


@asynccontextmanager
async def _noise(servers: Servers, objects: int, first: int) -> AsyncGenerator[None]:
    """Changes of all objects of the noisy namespace at once, again and again, each time after all are written."""
    task = asyncio.create_task(_bursts(servers, objects, first))
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _bursts(servers: Servers, objects: int, first: int) -> None:
    while True:
        process = await loading(servers, objects, objects, 0, first, NOISY)
        try:
            await process.communicate()  # also if the API server has ended its watch, as it does when it is overloaded
        except asyncio.CancelledError:
            process.terminate()
            await process.wait()
            raise
        first += objects


async def _until_written(servers: Servers, programs: Programs) -> None:
    async with asyncio.timeout(300):
        while True:
            programs.check()
            webs = _webs.decode((await servers.client.request("GET", ALL_WEBS, timeout=PATIENCE)).body).items
            if all(web.status.replicas == web.spec.replicas for web in webs):
                return
            await asyncio.sleep(0.5)
