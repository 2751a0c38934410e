"""Records that cannot be read, on a real log and database: in SQL, in what users see, and in nobody's way."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from levelog_base.wire.objects import ObjectKey, Partition, Uid, Version
from levelog_base.wire.records import ObjectSeen, ObjectUnreadable, SyncFinished, SyncStarted
from levelog_base.wire.subjects import partition_of
from levelog_log.messages import MessageWriter, header_lines
from levelog_log.publisher import BatchPublisher
from levelog_log.transport.wire import Message
from levelog_store.look.contact import read_unreadable
from levelog_store.rows import UnreadableRow
from levelog_store.tables import objects
from rigs.garbling import garbled
from rigs.levelog import Levelog
from rigs.nats import NatsServer
from rigs.processing import CLUSTER, PARTITIONS, Processing
from rigs.run.examples import examples
from rigs.webs import NOON, WEBS, web

BODY = web("w", 5, replicas=2).body
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=8).map(
    lambda name: f"odd-{name}"
)


class Rig:
    """Processors on a log to which anything can be written."""

    def __init__(self, processing: Processing) -> None:
        self.processing = processing
        self._writer = MessageWriter(CLUSTER, PARTITIONS, source="test")
        self._publisher = BatchPublisher(processing.stream)

    def message(self, name: str, version: int, body: bytes) -> Message:
        key = ObjectKey(group="example.com", resource="webs", namespace="default", name=name)
        return self._writer.message(
            ObjectSeen(key=key, uid=Uid(f"uid-{name}"), version=Version(version), origin="watch", time=NOON, body=body)
        )

    async def write(self, *messages: Message) -> int:
        return await self._publisher.publish(messages)

    async def unreadable(self) -> list[UnreadableRow]:
        async with self.processing.database.reading() as connection:
            return await read_unreadable(connection, self.processing.scope)


@pytest_asyncio.fixture
async def rig(nats_server: NatsServer, database_url: str) -> AsyncIterator[Rig]:
    async with Processing(nats_server.url, database_url) as processing:
        processing.start()
        await processing.folded(await processing.listed(web("w", 5, replicas=2)))
        yield Rig(processing)


HEADERS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)


@pytest.mark.timeout(600)
async def test_invariant_14_whatever_stands_in_the_log_processors_go_on(rig: Rig) -> None:
    """Names, bodies and headers that ingest would not write, 40 in a batch."""
    loop = asyncio.get_running_loop()
    batches = 0

    async def is_survived(some: list[tuple[str, bytes, dict[str, str]]]) -> None:
        nonlocal batches
        batches += 1
        messages: list[Message] = []
        for name, body, more in some:
            message = rig.message(name, batches, body)
            messages.append(message._replace(headers=message.headers + header_lines(more)))
        await rig.write(*messages, rig.message("w", 100 + batches, BODY))
        await rig.processing.folded(await rig.processing.stream.last_sequence())
        (now,) = [row for row in await rig.processing.rows(objects) if row["object"] == "webs.example.com/default/w"]
        assert now["version"] == 100 + batches

    header_names = st.sampled_from(["levelog-uid", "levelog-version", "ce-time", "ce-subject", "ce-id", "ce-type"])
    odd = st.tuples(NAMES, garbled(BODY), st.dictionaries(header_names, HEADERS, max_size=2))

    @settings(
        max_examples=examples(15),
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
        database=None,
    )
    @given(st.lists(odd, min_size=40, max_size=40))
    def check(some: list[tuple[str, bytes, dict[str, str]]]) -> None:
        asyncio.run_coroutine_threadsafe(is_survived(some), loop).result(60)

    await asyncio.to_thread(check)
    assert batches >= examples(15)
    assert len(await rig.unreadable()) > 3 * batches


async def test_invariant_14_a_record_that_cannot_be_read_is_shown_until_its_object_is_told_anew(rig: Rig) -> None:
    last = await rig.write(rig.message("w", 6, b"\xff"))
    await rig.processing.folded(last)
    (shown,) = await rig.unreadable()
    assert (shown.place, shown.sequence) == ("webs.example.com/default/w", last)
    assert shown.error == "not the JSON of an object: invalid start byte (byte 0)"
    assert await rig.processing.find_level("w")
    await rig.processing.folded(await rig.write(rig.message("w", 7, BODY)))
    assert await rig.unreadable() == []


async def test_a_list_with_an_object_without_a_name_deletes_nothing_and_the_next_one_does(rig: Rig) -> None:
    await relist(rig, ObjectUnreadable(resource=WEBS, error="odd", time=NOON), has_unnamed=True)
    assert [row["name"] for row in await rig.processing.rows(objects)] == ["w"]
    assert [each.place for each in await rig.unreadable()] == ["webs.example.com"]
    await relist(rig, None, has_unnamed=False)
    assert await rig.processing.rows(objects) == []
    assert await rig.unreadable() == []


lists = iter(range(100, 200))


async def relist(rig: Rig, told: ObjectUnreadable | None, *, has_unnamed: bool) -> None:
    """A list of Webs that holds no Web but, perhaps, what cannot be read."""
    number = next(lists)
    await rig.processing.mark(SyncStarted(resource=WEBS, sync_id=str(number), time=NOON))
    if told is not None:
        partition = Partition(0) if told.key is None else partition_of(told.key, PARTITIONS)
        await rig.write(MessageWriter(CLUSTER, PARTITIONS, source="test").message(told, partition))
    ended = SyncFinished(
        resource=WEBS, sync_id=str(number), version=Version(number), has_unnamed=has_unnamed, time=NOON
    )
    await rig.processing.folded(await rig.processing.mark(ended))


async def test_commands_show_what_cannot_be_read(nats_server: NatsServer, tmp_path: Path) -> None:
    levelog = Levelog(tmp_path)
    url = f"sqlite:///{tmp_path}/levelog.db"
    async with Processing(nats_server.url, url) as processing:
        processing.start()
        await processing.folded(await processing.listed(web("w", 5)))
        key = ObjectKey(group="example.com", resource="webs", namespace="default", name="x")
        writer = MessageWriter(CLUSTER, PARTITIONS, source="test")
        odd = ObjectUnreadable(resource=WEBS, key=key, error="its uid is missing", time=NOON)
        last = await BatchPublisher(processing.stream).publish([writer.message(odd, partition_of(key, PARTITIONS))])
        await processing.folded(last)
    shown = await levelog.ends("levels", "--database-url", url)
    assert shown.stdout.splitlines()[-2:] == [
        "1 record cannot be read; the levels do not know what is in there:",
        "webs.example.com/default/x: its uid is missing",
    ]
    found = await levelog.ends("doctor", "--database-url", url)
    assert "note   records      webs.example.com/default/x: a record cannot be read" in found.stdout
