"""How fast recorded history is read, folded into a scratch database, and decided again."""

import resource
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from rich.console import Console
from rich.table import Table

from bench.kopfprocess import OPERATORS
from levelog.objects import Application, Cluster, GroupResource, ObjectKey, Uid, Version
from levelog.records import ObjectSeen, SyncFinished, SyncStarted
from levelog.redaction import Redactor
from levelog_cli.loading import load_operators
from levelog_log.connection import connect
from levelog_log.messages import Writer
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import LogStream, ensure_stream
from levelog_processors.program import Program
from levelog_replay.folding import HistoryFolder
from levelog_replay.history import open_recording
from levelog_replay.inorder import LogReplay
from levelog_replay.scratch import open_scratch
from rigs.nats import NatsServer

WEBS = GroupResource(group="example.com", resource="webs")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
VERSIONS = 10
IN_ORDER = 2_000
"""Records of mode `log`, which commits and looks for wakeups after each."""
_BATCH = 500


async def run(console: Console, count: int) -> None:
    """Measure and print."""
    table = Table(title=f"replay of {count} records of 3 KB, SQLite", title_justify="left")
    for name in ("what", "records/s"):
        table.add_column(name, justify="left" if name == "what" else "right")
    async with NatsServer(settings="") as nats, await connect(nats.url) as connection:
        stream = await ensure_stream(connection, Cluster("bench"))
        written = await _record(stream, count)
        table.add_row("the log, read", f"{written / await _read(stream):,.0f}")
        before = _most_memory_mb()
        table.add_row("mode recorded: read and folded up to a decision", f"{written / await _fold(stream):,.0f}")
        table.add_row("most memory meanwhile: grown by", f"{_most_memory_mb() - before:,.0f} MB")
        short = await ensure_stream(connection, Cluster("bench-short"))
        written = await _record(short, IN_ORDER)
        table.add_row("mode log: decided on after each record", f"{written / await _in_order(short):,.0f}")
    console.print(table)


async def _record(stream: LogStream, count: int) -> int:
    """Write a list and changes of Webs; returns how many records that is."""
    writer = Writer(stream.cluster, stream.partitions, source="bench")
    publisher = BatchPublisher(stream)
    begun = SyncStarted(resource=WEBS, sync_id="one", time=NOON)
    ended = SyncFinished(resource=WEBS, sync_id="one", version=Version(0), time=NOON)
    messages = writer.to_all_partitions(begun)
    messages += writer.to_all_partitions(ended)
    await publisher.publish(messages)
    written = len(messages)
    for batch in _batches(count):
        await publisher.publish([writer.message(record) for record in batch])
        written += len(batch)
    return written


def _batches(count: int) -> Iterator[Sequence[ObjectSeen]]:
    batch: list[ObjectSeen] = []
    for number in range(count):
        name = f"web-{number % (count // VERSIONS):05}"
        key = ObjectKey(group="example.com", resource="webs", namespace="default", name=name)
        body = {
            "apiVersion": "example.com/v1",
            "kind": "Web",
            "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": str(number + 1)},
            "spec": {"image": f"nginx:{number // (count // VERSIONS)}", "padding": "x" * 2800},
        }
        batch.append(
            ObjectSeen(
                key=key,
                uid=Uid(name),
                version=Version(number + 1),
                origin="watch",
                time=NOON + timedelta(milliseconds=number),
                body=msgspec.json.encode(body),
            )
        )
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


async def _read(stream: LogStream) -> float:
    recording = await open_recording(stream, Application("indexed"))
    begun = time.monotonic()
    async for _ in recording.records():
        pass
    return time.monotonic() - begun


async def _fold(stream: LogStream) -> float:
    recording = await open_recording(stream, Application("indexed"))
    program = Program(load_operators([OPERATORS / "indexed.py"]))
    begun = time.monotonic()
    async with open_scratch(program, recording.origin) as scratch:
        await HistoryFolder(recording, [scratch]).fold_up_to([recording.last] * recording.origin.partitions)
    return time.monotonic() - begun


async def _in_order(stream: LogStream) -> float:
    recording = await open_recording(stream, Application("indexed"))
    program = Program(load_operators([OPERATORS / "indexed.py"]))
    async with open_scratch(program, recording.origin) as scratch:
        replay = LogReplay(recording, scratch, redactor=Redactor())
        begun = time.monotonic()
        async for _ in replay.run():
            pass
        seconds = time.monotonic() - begun
        await replay.close()
    return seconds


def _most_memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
