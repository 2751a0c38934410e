"""How fast recorded history is read, folded, and decided again.

Beside nats-py's own way to fetch the same messages, which is what tells how fast the machine is just now.
"""

import resource
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import nats
from nats.js.api import AckPolicy, ConsumerConfig
from rich.console import Console
from rich.table import Table

from bench.programs import OPERATORS
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Cluster, GroupResource, ObjectKey, Uid, Version
from levelog_base.wire.records import ObjectSeen, SyncFinished, SyncStarted
from levelog_cli.loading import load_operators
from levelog_history.records import LogRecording, LogSource
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import LogStream, ensure_stream
from levelog_log.transport.connection import connect
from levelog_processors.decide.functions import Caller
from levelog_processors.program import Program
from levelog_replay.choice import Selection
from levelog_replay.inorder import LogReplay
from levelog_replay.judging import Judge
from levelog_replay.recordedinputs import RecordedReplay
from levelog_replay.tape import Rebuilt, Tape
from levelog_store.decide.decisions import WithWrites
from rigs.nats import NatsServer

WEBS = GroupResource(group="example.com", resource="webs")
BEGIN = datetime.now(UTC) + timedelta(hours=1)
"""Time of the first record: no decision was made before the log was."""
VERSIONS = 10
"""Of each object, one after the other: the first tenth of the records shows all objects once."""
IN_ORDER = 500
"""Records of a replay in order, which decides after each."""
_BATCH = 500
_FETCH = 1000


async def run(console: Console, count: int) -> None:
    """Measure and print."""
    table = Table(title=f"replay of {count} records of 3 KB", title_justify="left")
    table.add_column("what")
    table.add_column("a second", justify="right")
    table.add_column("of nats-py", justify="right")
    async with NatsServer(settings="") as server, await connect(server.url) as connection:
        stream = await ensure_stream(connection, Cluster("bench"))
        written = await _record(stream, count)
        fetched = written / await _fetch(server.url, stream, written)

        def add(what: str, records: int, seconds: float) -> None:
            table.add_row(what, f"{records / seconds:,.0f}", f"{records / seconds / fetched:.2f}")

        add("nats-py: messages fetched, and not looked at", written, written / fetched)
        add("records of the log, read", written, await _read(stream))
        once = written - count + count // VERSIONS
        what = f"replay: the first {once}, each of another object, folded up to a decision"
        add(what, once, await _fold(stream, once))
        before = _most_memory_mb()
        what = f"replay: all, {VERSIONS} versions of each object, folded up to a decision"
        add(what, written, await _fold(stream, written))
        grown = _most_memory_mb() - before
        short = await ensure_stream(connection, Cluster("bench-short"))
        written = await _record(short, IN_ORDER)
        recording, program = await _opened(short)
        decided, seconds = await _in_order(recording, program)
        add(f"what-if: {written} records, decided on after each", written, seconds)
        again = await _again(_Decided(recording, decided))
        add(f"replay: {len(decided)} decisions made again, a snapshot for each", len(decided), again)
    console.print(table)
    console.print(f"most memory for {count} records: {grown:+,.0f} MB to that for {once}")


async def _record(stream: LogStream, count: int) -> int:
    """Write a list and changes of Webs; returns how many records that is."""
    writer = stream.writer("bench")
    publisher = BatchPublisher(stream)
    begun = SyncStarted(resource=WEBS, sync_id="one", time=BEGIN)
    ended = SyncFinished(resource=WEBS, sync_id="one", version=Version(0), time=BEGIN)
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
                time=BEGIN + timedelta(milliseconds=number),
                body=msgspec.json.encode(body),
            )
        )
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


async def _fetch(url: str, stream: LogStream, count: int) -> float:
    """Seconds that nats-py's client takes by itself, as its documentation has it."""
    client = await nats.connect(url)
    begun = time.monotonic()
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    fetching = await client.jetstream().pull_subscribe("", stream=stream.name, config=config)
    fetched = 0
    while fetched < count:
        fetched += len(await fetching.fetch(_FETCH))
    seconds = time.monotonic() - begun
    await client.close()
    return seconds


async def _read(stream: LogStream) -> float:
    recording = await LogSource(stream, "indexed").recorded()
    begun = time.monotonic()
    async for _ in recording.records():
        pass
    return time.monotonic() - begun


async def _opened(stream: LogStream) -> tuple[LogRecording, Program]:
    return await LogSource(stream, "indexed").recorded(), Program(load_operators([OPERATORS / "indexed.py"]))


async def _fold(stream: LogStream, last: int) -> float:
    """Seconds for all records up to one."""
    begun = time.monotonic()
    recording, program = await _opened(stream)
    await Tape(recording, [Rebuilt(program, recording.origin)]).fold_up_to([last] * recording.origin.partitions)
    return time.monotonic() - begun


async def _in_order(recording: LogRecording, program: Program) -> tuple[Sequence[WithWrites], float]:
    """Decisions that were made, and seconds."""
    replay = LogReplay(recording, program, redactor=Redactor())
    begun = time.monotonic()
    decided = [each async for each in replay.decisions()]
    seconds = time.monotonic() - begun
    await replay.close()
    return decided, seconds


class _Decided:
    """A history with the decisions that a replay in order made on it."""

    def __init__(self, recording: LogRecording, decided: Sequence[WithWrites]) -> None:
        self.origin, self.first, self.last = recording.origin, recording.first, recording.last
        self.records, self.redaction = recording.records, recording.redaction
        self._decided = decided

    async def decisions(self) -> AsyncGenerator[WithWrites]:
        for each in self._decided:
            yield each


async def _again(history: _Decided) -> float:
    program = Program(load_operators([OPERATORS / "indexed.py"]))
    begun = time.monotonic()
    judge = Judge(Rebuilt(program, history.origin), Caller())
    async for (judged,) in RecordedReplay(history, Selection(), [judge]).run():
        if judged.conclusion is None:
            raise RuntimeError(judged.obstacle)
    await judge.close()
    return time.monotonic() - begun


def _most_memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
