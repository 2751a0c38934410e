"""What a noisy tenant costs a quiet one: a namespace edited now and then, alone and beside one that is edited much."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Final

import msgspec
from msgspec import Struct
from rich.console import Console
from sqlalchemy import select

from bench.changes import load, loading, until_idle
from bench.programs import Programs, all_peers, running
from bench.servers import ALL_WEBS, PATIENCE, Servers
from bench.tables import print_compared
from levelog_store.connect.database import Database
from levelog_store.tables import intents

QUIET: Final = "quiet"
NOISY: Final = "noisy"
QUIET_OBJECTS: Final = 20
RATE: Final = 5
SECONDS: Final = 40
NOISE: Final = (50, 100)
"""Changes of the noisy namespace a second."""
SETTLED_SECONDS: Final = 3
"""How long the noise lasts before and after the quiet namespace is edited."""
BURST_SECONDS: Final = 10
"""How long the quiet namespace is edited from the moment that all objects of the noisy one are changed at once."""


class _Web(Struct):
    class Replicas(Struct):
        replicas: int = 0

    spec: Replicas
    status: Replicas = msgspec.field(default_factory=Replicas)


class _Webs(Struct):
    items: list[_Web]


_webs: Final = msgspec.json.Decoder(_Webs)
_patch: Final = msgspec.json.Decoder(dict[str, dict[str, int]])


async def run(servers: Servers, console: Console, objects: int, rounds: int, names: Sequence[str]) -> None:
    """Measure and print; `objects` are those of the noisy namespace, `names` parts of the names of the peers."""
    for namespace in (QUIET, NOISY):
        body = msgspec.json.encode({"metadata": {"name": namespace}})
        await servers.client.request("POST", "/api/v1/namespaces", body=body)
    await servers.create_webs(QUIET_OBJECTS, namespace=QUIET)
    await servers.create_webs(objects, namespace=NOISY)
    first = 2
    for peer in all_peers():
        if not any(name in peer.name for name in names or ["Go", "PostgreSQL", "split"]):
            continue
        found: dict[str, list[dict[str, float]]] = defaultdict(list)
        async with running(servers, peer) as programs:
            for _ in range(rounds):
                for rate in (None, *NOISE, 0):
                    await _until_written(servers, programs)
                    await until_idle()
                    name = "alone" if rate is None else f"beside {rate}/s" if rate else f"beside {objects:,} at once"
                    found[name].append(await _measured(servers, programs, objects, rate, first))
                    programs.check()
                    first += 100_000
        columns = {name: {what: median(one[what] for one in each) for what in each[0]} for name, each in found.items()}
        print_compared(console, f"{peer.name}, {RATE} changes a second, in ms, medians of {rounds}", columns)


async def _measured(
    servers: Servers, programs: Programs, objects: int, rate: int | None, first: int
) -> dict[str, float]:
    """Milliseconds from sending a change of the quiet namespace, beside so many others a second; 0: all at once."""
    changes = RATE * (SECONDS if rate != 0 else BURST_SECONDS)
    if rate is None:
        timed = await load(servers, QUIET_OBJECTS, changes, RATE, first, QUIET)
    else:
        noise = rate * (SECONDS + 2 * SETTLED_SECONDS) or objects
        process = await loading(servers, objects, noise, rate, first, NOISY)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(process.communicate())
            await asyncio.sleep(SETTLED_SECONDS if rate else 1)  # a second: until it is loaded
            timed = await load(servers, QUIET_OBJECTS, changes, RATE, first, QUIET)

    own = [seen - answered for seen, answered in zip(timed.seen, timed.answered, strict=True)]
    took = {"answer of the API": timed.answered}
    if programs.database_url:
        decided = await _decided(programs.database_url, first, changes)
        took["level decided on"] = [(decided[n] - at) * 1000 for n, at in enumerate(timed.sent_at)]
    took |= {"status seen": timed.seen, "status seen after the answer": own}
    cuts = {what: quantiles(values, n=100) for what, values in took.items()}
    return {f"{what}: p{n}": each[n - 1] for what, each in cuts.items() for n in (50, 99)}


async def _decided(url: str, first: int, changes: int) -> list[float]:
    """When each change from `first` on was decided on, by itself or with a later one of its object."""
    async with await Database.open(url, read_only=True) as database, database.reading() as connection:
        rows = await connection.execute(
            select(intents.c.body, intents.c.decided_at).where(intents.c.parent.contains(f"/{QUIET}/"))
        )
        found = {_patch.decode(body)["status"]["replicas"] - first: at.timestamp() for body, at in rows}
    return [next(found[n] for n in range(number, changes, QUIET_OBJECTS) if n in found) for number in range(changes)]


async def _until_written(servers: Servers, programs: Programs) -> None:
    async with asyncio.timeout(300):
        while True:
            programs.check()
            webs = _webs.decode((await servers.client.request("GET", ALL_WEBS, timeout=PATIENCE)).body).items
            if all(web.status.replicas == web.spec.replicas for web in webs):
                return
            await asyncio.sleep(0.5)
