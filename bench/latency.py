"""From a change to the written status, at a steady rate, with its parts."""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from statistics import quantiles
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from bench.installation import Installation
from bench.servers import WEBS, Servers, web_name
from levelog.wire.records import ObjectSeen
from levelog_kube.discovery import cluster_uid
from levelog_log.reader import Reader
from levelog_log.stream import LogStream, open_stream
from levelog_log.transport.connection import connect as connect_nats

PARTS = ("watch", "log", "fold", "decide", "claim", "write")


class Change(Struct):
    """The moments of one change, in seconds since the epoch; 0: not seen."""

    changed: float = 0.0
    """The API server answered the change."""
    observed: float = 0.0
    """ingest took it from the watch."""
    logged: float = 0.0
    """It was read from the log."""
    sequence: int = 0
    claimed: float = 0.0
    written: float = 0.0
    """A watch showed the status."""


class _Object(Struct, rename="camel"):
    class Metadata(Struct):
        name: str

    class Replicas(Struct, frozen=True):
        replicas: int = 0

    metadata: Metadata
    spec: Replicas = Replicas()
    status: Replicas = Replicas()


class _Event(Struct):
    type: str
    object: msgspec.Raw


_object = msgspec.json.Decoder(_Object)
_event = msgspec.json.Decoder(_Event)


async def run(servers: Servers, levelog: Installation, console: Console, count: int, rate: float) -> None:
    """Measure and print."""
    changes: dict[tuple[str, int], Change] = {(web_name(n), 1000 + n): Change() for n in range(count)}
    before = await servers.writes()
    answer = await servers.client.request("GET", WEBS, query={"limit": "1"})
    version = msgspec.json.decode(answer.body)["metadata"]["resourceVersion"]
    async with await connect_nats(levelog.nats.url) as connection:
        stream = await open_stream(connection, await cluster_uid(servers.client))
        start = await stream.last_sequence()
        watching = asyncio.create_task(_watch(servers, version, changes))
        reading = asyncio.create_task(_read(stream, start + 1, changes))
        try:
            await _change(servers, changes, rate)
            async with asyncio.timeout(60):
                while not all(change.written and change.logged for change in changes.values()):
                    for task in (watching, reading):
                        if task.done():
                            task.result()
                    await asyncio.sleep(0.1)
        finally:
            for task in (watching, reading):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
    _print(console, levelog, changes, rate, await servers.writes() - before)


async def _change(servers: Servers, changes: dict[tuple[str, int], Change], rate: float) -> None:
    """Send changes at their times, whether or not earlier ones have been answered."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def send(name: str, replicas: int, change: Change) -> None:
        await servers.patch_web(int(name.removeprefix("web-")), {"spec": {"replicas": replicas}})
        change.changed = _now()

    async with asyncio.TaskGroup() as tasks:
        for number, ((name, replicas), change) in enumerate(changes.items()):
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
            tasks.create_task(send(name, replicas, change))


async def _watch(servers: Servers, version: str, changes: dict[tuple[str, int], Change]) -> None:
    query = {"watch": "1", "resourceVersion": version}
    async with servers.client.stream(WEBS, query=query) as chunks:
        async for lines in chunks:
            at = _now()
            for line in lines:
                web = _object.decode(_event.decode(line).object)
                change = changes.get((web.metadata.name, web.status.replicas))
                if change is not None and not change.written:
                    change.written = at


async def _read(stream: LogStream, start: Any, changes: dict[tuple[str, int], Change]) -> None:
    async with Reader(stream, start=start) as reader:
        while True:
            for logged in await reader.next_batch():
                record = logged.record
                if not isinstance(record, ObjectSeen):
                    continue
                web = _object.decode(record.body)
                change = changes.get((web.metadata.name, web.spec.replicas))
                if change is not None and not change.logged:
                    change.logged, change.sequence = _now(), logged.sequence
                    change.observed = record.time.timestamp()


def _print(
    console: Console,
    levelog: Installation,
    changes: dict[tuple[str, int], Change],
    rate: float,
    writes: Counter[str],
) -> None:
    folds = _moments(levelog, "folded")
    decisions = _moments(levelog, "decided on")
    claims = {
        line["object"].rpartition("/")[2]: _time(line)
        for line in levelog.log_lines("actuate")
        if line["message"] == "claimed"
    }
    parts: dict[str, list[float]] = {name: [] for name in PARTS}
    totals: list[float] = []
    for (name, _), change in changes.items():
        folded = _first(folds, change.sequence)
        decided = _first(decisions, change.sequence)
        moments = (change.changed, change.observed, change.logged, folded, decided, claims[name], change.written)
        for part, one, other in zip(PARTS, moments, moments[1:], strict=False):
            parts[part].append((other - one) * 1000)
        totals.append((change.written - change.changed) * 1000)
    table = Table(title=f"change to written status, {len(changes)} changes at {rate:g}/s, in ms", title_justify="left")
    for name in ("part", "p50", "p90", "p99", "max"):
        table.add_column(name, justify="left" if name == "part" else "right")
    for name, values in (*parts.items(), ("total", totals)):
        cuts = quantiles(values, n=100)
        table.add_row(name, *(f"{value:.1f}" for value in (cuts[49], cuts[89], cuts[98], max(values))))
    console.print(table)
    console.print("writes counted by the API server: " + ", ".join(f"{name}: {n}" for name, n in writes.items() if n))
    console.print("Logs are cut to milliseconds, so that a part may come out a millisecond short or below zero.")


def _moments(levelog: Installation, message: str) -> tuple[list[int], list[float]]:
    """Sequences, rising, and when the processor said that it was done with them."""
    reached: list[tuple[int, float]] = []
    for line in levelog.log_lines("process"):
        if line["message"].startswith(message) and (not reached or line["sequence"] > reached[-1][0]):
            reached.append((line["sequence"], _time(line)))
    return [sequence for sequence, _ in reached], [at for _, at in reached]


def _first(moments: tuple[Sequence[int], Sequence[float]], sequence: int) -> float:
    return moments[1][bisect_left(moments[0], sequence)]


def _time(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["time"]).timestamp()


def _now() -> float:
    return datetime.now(UTC).timestamp()
