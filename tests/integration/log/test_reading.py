import asyncio
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from levelog_base.errors import IdentityMismatch, LevelogError
from levelog_base.wire.objects import Partition, Sequence
from levelog_base.wire.records import LoggedRecord, ObjectSeen, Unreadable
from levelog_log import reader as reading
from levelog_log.publisher import BatchPublisher
from levelog_log.reader import Reader
from levelog_log.stream import LogStream, ensure_stream, open_stream
from rigs.logs import (
    MOMENT,
    delete_stream,
    expire,
    names_and_versions,
    new_log,
    proxied,
    publish_webs,
    read_all,
    restart,
    web_message,
    writer_for,
)
from rigs.nats import NatsServer
from rigs.restoring import put_back
from rigs.waiting import until

LONG = timedelta(seconds=20)


async def read(reader: Reader, least: int) -> list[LoggedRecord]:
    records: list[LoggedRecord] = []
    async with asyncio.timeout(30):
        while len(records) < least:
            records += await reader.next_batch()
    return records


def sequences(records: list[LoggedRecord]) -> list[int]:
    return [record.sequence for record in records]


async def send(server: NatsServer, operation: bytes) -> None:
    """Send what no client of this language would."""
    socket, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n%bPING\r\n' % operation)
    assert (await socket.readline()).startswith(b"INFO")
    assert await socket.readline() == b"PONG\r\n"
    writer.close()


async def consumers(stream: LogStream) -> list[str]:
    answer = await stream.connection.request(f"$JS.API.CONSUMER.NAMES.{stream.name}")
    return msgspec.json.decode(answer.data)["consumers"] or []


async def test_reading_begins_at_any_record_and_ends_at_the_last(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        await publish_webs(stream, 3000)
        async with Reader(stream, start=Sequence(1001)) as reader:
            records = await read(reader, 2000)
            assert sequences(records) == list(range(1001, 3001))
            assert (reader.position, reader.seen_to, reader.pending) == (3000, 3000, 0)
            assert await reader.next_batch(timeout=MOMENT) == []
            await publish_webs(stream, 2, 3001)
            assert sequences(await read(reader, 2)) == [3001, 3002]


async def test_a_batch_holds_at_most_what_was_asked_for(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        await publish_webs(stream, 1000)
        async with Reader(stream) as reader:
            first = await reader.next_batch(max_records=7)
            assert len(first) == 7 or reader.pending
            assert reader.position == len(first)
            assert reader.pending
            rest = await read(reader, 1000 - len(first))
            assert sequences(first + rest) == list(range(1, 1001))


async def test_a_reader_of_partitions_gets_just_their_records(nats_server: NatsServer) -> None:
    async with new_log(nats_server, partitions=8) as stream:
        await publish_webs(stream, 1000)
        everything = await read_all(stream)
        wanted = [Partition(1), Partition(5)]
        assert await read_all(stream, wanted) == [record for record in everything if record.partition in wanted]


async def test_a_reader_of_quiet_partitions_learns_how_far_the_log_is(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelog_log.reader.HEARTBEAT", timedelta(seconds=0.5))
    async with new_log(nats_server, partitions=2) as stream:
        writer = writer_for(stream)
        publisher = BatchPublisher(stream)
        await publish_webs(stream, 49)
        (of_last,) = [(await stream.record_at(Sequence(49)))]
        assert of_last is not None
        quiet = Partition(1 - of_last.partition)
        async with Reader(stream, partitions=[quiet]) as reader:

            async def is_read() -> bool:
                await reader.next_batch(timeout=MOMENT)
                return reader.seen_to == 49

            await until(is_read, "the end of a quiet partition")
            assert isinstance(of_last.record, ObjectSeen)
            for version in range(50, 60):
                await publisher.publish([web_message(writer, of_last.record.key.name, version)])
            assert reader.seen_to == 49
            assert await reader.confirm() == 59


async def test_confirming_says_nothing_while_a_record_is_to_be_read(nats_server: NatsServer) -> None:
    async with new_log(nats_server, partitions=1) as stream:
        await publish_webs(stream, 10)
        reader = Reader(stream)
        assert await reader.confirm() == 0  # nothing can have arrived, as it has not begun
        async with reader:
            await read(reader, 10)
            assert await reader.confirm() == 10


async def test_records_larger_than_a_request_for_records_come_too(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        publisher, writer = BatchPublisher(stream), writer_for(stream)
        sizes = [10, 6_000_000, 7_000_000, 20, 3_000_000, 3_000_000, 30]
        for version, size in enumerate(sizes, 1):
            await publisher.publish([web_message(writer, "w", version, body=b"x" * size)])
        async with Reader(stream) as reader:
            records = await read(reader, len(sizes))
        assert [len(record.record.body) for record in records if isinstance(record.record, ObjectSeen)] == sizes


async def test_invariant_1_reading_goes_on_without_loss_or_repetition_when_the_server_is_killed(
    nats_server: NatsServer,
) -> None:
    async with new_log(nats_server) as stream, Reader(stream) as reader:
        await publish_webs(stream, 5000, body=b"x" * 1000)
        records = await read(reader, 1)
        for _ in range(2):
            nats_server.kill()
            await nats_server.start()
            records += await read(reader, 1000)
        await stream.connection.wait_connected()
        await publish_webs(stream, 100, 5001)
        records += await read(reader, 5100 - len(records))
        assert sequences(records) == list(range(1, 5101))


async def test_reading_goes_on_when_its_consumer_is_removed(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream, Reader(stream) as reader:
        await publish_webs(stream, 100)
        records = await read(reader, 100)
        (consumer,) = await consumers(stream)
        await stream.connection.request(f"$JS.API.CONSUMER.DELETE.{stream.name}.{consumer}")
        await publish_webs(stream, 100, 101)
        records += await read(reader, 100)
        assert sequences(records) == list(range(1, 201))


async def test_a_closed_reader_leaves_no_consumer(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        await publish_webs(stream, 10)
        async with Reader(stream) as reader:
            await read(reader, 10)
            assert len(await consumers(stream)) == 1
        await until(lambda: consumers(stream), "the consumer to go", accept=lambda found: not found)


async def test_a_reader_can_be_closed_while_its_connection_is_made_again(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_log(nats_server) as stream, proxied(nats_server) as (proxy, connection):
        reader = Reader(await open_stream(connection, stream.cluster))
        async with reader:
            await publish_webs(stream, 2)
            assert sequences(await read(reader, 2)) == [1, 2]
            is_noted = asyncio.Event()
            monkeypatch.setattr(connection.client, "_reconnected_cb", is_noted.wait)
            proxy.cut()

            async def is_made_again_and_not_noted() -> bool:
                return connection.client.is_connected and not connection.is_connected

            await until(is_made_again_and_not_noted, "a connection that nobody has been told of")
        is_noted.set()


async def test_invariant_14_a_record_that_cannot_be_read_is_told_and_passed(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        writer = writer_for(stream)
        good = web_message(writer, "w", 1)
        strange = [
            good._replace(headers=b""),
            good._replace(headers=good.headers.replace(b"levelog-envelope: 1", b"levelog-envelope: 99")),
            good._replace(headers=good.headers.replace(b"levelog-version: 1", b"levelog-version: one")),
        ]
        await BatchPublisher(stream).publish([*strange, good])
        records = await read_all(stream)
        assert [type(record.record) for record in records] == [Unreadable, Unreadable, Unreadable, ObjectSeen]
        for record, word in zip(records, ("levelog-envelope", "'99'", "one"), strict=False):
            assert word in str(record.record)


@pytest.mark.parametrize(
    ("name", "headers"),
    [(b"\xff", b""), (b"w", b"x"), (b"w", b"NATS/1.0 \xff: b")],
    ids=["a subject that is no text", "headers of another protocol", "headers that are no text"],
)
async def test_invariant_14_a_record_whose_subject_or_headers_are_none_is_told_and_passed(
    nats_server: NatsServer, name: bytes, headers: bytes
) -> None:
    async with new_log(nats_server) as stream:
        subject = f"levelog.{stream.cluster}.3.example%2Ecom.webs.default.".encode() + name
        sizes = b"%d %d" % (len(headers), len(headers) + 2) if headers else b"2"
        await send(nats_server, b"%b %b %b\r\n%b{}\r\n" % (b"HPUB" if headers else b"PUB", subject, sizes, headers))
        await publish_webs(stream, 1)
        async with Reader(stream) as reader:
            records = await read(reader, 2)
            assert reader.beginnings == 1
        assert [type(record.record) for record in records] == [Unreadable, ObjectSeen]


async def test_a_record_that_does_not_come_is_told_and_asked_for_again_after_a_pause(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_log(nats_server) as stream:
        client: Any = stream.connection.client
        process_headers = client._process_headers

        async def lose_third(headers: bytes | None) -> Any:
            if b"uid-w-2" in (headers or b""):
                raise ZeroDivisionError
            return await process_headers(headers)

        await publish_webs(stream, 5)
        with monkeypatch.context() as losing:
            losing.setattr(client, "_process_headers", lose_third)
            monkeypatch.setattr(reading, "HOLE_PAUSE", timedelta(hours=1))
            async with Reader(stream) as reader:
                assert sequences(await read(reader, 2)) == [1, 2]
                await until(
                    lambda: "the record after 2 was sent and did not come" in caplog.text, "the record that is missing"
                )
                assert await reader.next_batch(timeout=MOMENT) == []
                assert reader.beginnings == 2
            monkeypatch.setattr(reading, "HOLE_PAUSE", timedelta(0))
            async with Reader(stream) as reader:
                await until(lambda: reader.beginnings > 3, "a reader that asks again")
                losing.undo()
                assert sequences(await read(reader, 5)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("mistaken", ["levelog_log.stream.LogStream.state", "levelog_log.reader.partition_in"])
async def test_a_mistake_in_reading_is_told_to_who_waits(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, mistaken: str
) -> None:
    def mistake(*_: object) -> NoReturn:
        raise ZeroDivisionError("a mistake")

    async with new_log(nats_server) as stream:
        await publish_webs(stream, 1)
        monkeypatch.setattr(mistaken, mistake)
        async with Reader(stream) as reader:
            with pytest.raises(LevelogError, match="reading the log failed: a mistake"):
                await read(reader, 1)


@pytest.mark.parametrize("is_made_anew", [False, True])
async def test_invariant_13_a_reader_notices_a_log_that_is_gone_or_was_made_anew(
    nats_server: NatsServer, *, is_made_anew: bool
) -> None:
    async with new_log(nats_server) as stream, Reader(stream) as reader:
        await publish_webs(stream, 10)
        await read(reader, 10)
        await delete_stream(stream.connection, stream)
        if is_made_anew:
            await publish_webs(await ensure_stream(stream.connection, stream.cluster), 20)
        with pytest.raises(IdentityMismatch, match=r"made anew|is gone" if is_made_anew else "is gone"):
            await reader.next_batch(timeout=LONG)


async def test_invariant_13_a_reader_notices_a_log_that_was_rolled_back(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with new_log(nats_server) as stream:
        await publish_webs(stream, 10)
        await restart(nats_server, stream, lambda: shutil.copytree(nats_server.store_dir, tmp_path / "older"))
        await publish_webs(stream, 10, 11)
        async with Reader(stream) as reader:
            assert len(await read(reader, 20)) == 20
            await restart(nats_server, stream, lambda: put_back(nats_server, tmp_path / "older"))
            with pytest.raises(IdentityMismatch, match="ends at 10, before 20"):
                await reader.next_batch(timeout=LONG)


async def test_a_start_past_the_end_of_the_log_is_noticed_and_not_waited_for(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        await publish_webs(stream, 10)
        async with Reader(stream, start=Sequence(101)) as reader:
            with pytest.raises(IdentityMismatch, match="ends at 10, before 100"):
                await reader.next_batch(timeout=LONG)


async def test_a_start_before_the_first_record_left_is_noticed(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        await publish_webs(stream, 20)
        await expire(stream, keep=5)
        async with Reader(stream, start=Sequence(8)) as reader:
            with pytest.raises(IdentityMismatch, match="begins at 16, after 7"):
                await reader.next_batch(timeout=LONG)
        assert sequences(await read_all(stream)) == [16, 17, 18, 19, 20]
        assert len(names_and_versions(await read_all(stream, start=Sequence(16)))) == 5
