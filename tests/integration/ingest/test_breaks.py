"""What the log lost inside is listed again, once, and the log says from where to where history is missing."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from levelog_base.wire.objects import Application, Partition
from levelog_base.wire.records import LoggedRecord, ObjectSeen
from levelog_log import reader as reading
from levelog_log.notifications import Notifier
from levelog_log.reader import Reader
from levelog_log.stream import LogStream
from levelog_log.transport.wire import Message
from rigs.ingesting import gaps, ingesting, lists, state_of, until_recorded, until_watching
from rigs.logs import deletable, delete_records
from rigs.nats import NatsServer
from rigs.routes import Route, route_of

APPLICATION = Application("shops")


@pytest.fixture
async def world(tmp_path: Path, nats_server: NatsServer) -> AsyncGenerator[Route]:
    async with route_of(tmp_path, nats_server) as world:
        world.stream = await deletable(world.stream)
        yield world


@asynccontextmanager
async def processing(stream: LogStream) -> AsyncGenerator[None]:
    """What a processor does with the log: it reads one partition, and reports."""
    async with (
        Notifier(stream.connection, stream.cluster, APPLICATION) as notifier,
        Reader(stream, partitions=[Partition(0)], report=notifier.report) as reader,
    ):

        async def read() -> None:
            while True:
                await reader.next_batch()

        task = asyncio.create_task(read())
        try:
            yield
        finally:
            task.cancel()


async def test_what_nats_lost_is_listed_again_once(world: Route, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "HEARTBEAT", reading.HEARTBEAT / 50)
    kubeconfig, stream = world.kubeconfig, world.stream
    async with ingesting(kubeconfig, stream, application=APPLICATION) as ingest:
        await until_watching(ingest)
        for number in range(20):
            world.create(f"c-{number}")
        records = await until_recorded(stream, lambda records: len(state_of(records)) == 20)
        seen = [each for each in records if isinstance(each.record, ObjectSeen) and each.partition == 0]
        await delete_records(stream, seen[2].sequence)
        async with processing(stream):

            def is_whole(records: Sequence[LoggedRecord]) -> bool:
                return lists(records) == 2 and len(state_of(records)) == 20

            records = await until_recorded(stream, is_whole)
        (gap,) = gaps(records)
        where = f"history is missing from {seen[1].sequence + 1} to {seen[3].sequence - 1}"
        assert gap.reason == f"{where}: at least 1 record of partition 0"

        async with processing(stream):  # another one, which meets the hole, and the gap after it
            world.create("later")
            records = await until_recorded(stream, lambda records: "later" in state_of(records))
        assert (lists(records), len(gaps(records))) == (2, 1)


async def test_what_is_told_wrongly_is_passed(world: Route) -> None:
    kubeconfig, stream = world.kubeconfig, world.stream
    async with ingesting(kubeconfig, stream, application=APPLICATION) as ingest:
        await until_watching(ingest)
        subject = f"levelog-notify.{stream.cluster}.{APPLICATION}.lost"
        wrong = b'{"kind":"out of order","partition":1,"after":1,"before":2}'
        await stream.connection.publish_all([Message(subject, b"", told) for told in (b"nonsense", wrong)])
        records = await until_recorded(stream, lambda records: lists(records) == 2)
    assert [each.reason for each in gaps(records)] == [
        "record 2 of partition 1 came after record 1, which was written later"
    ]
