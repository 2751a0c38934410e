"""Records that expire before they are read, and logs that were restored from a backup: no reader goes on over them."""

from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from levelog_base.errors import HistoryLost, IdentityMismatch
from levelog_base.wire.objects import Partition, Sequence
from levelog_base.wire.records import LoggedRecord
from levelog_log import reader as reading
from levelog_log.publisher import BatchPublisher
from levelog_log.reader import Reader, read_up_to_now
from rigs.logs import (
    deletable,
    delete_records,
    expire,
    limit_bytes,
    new_log,
    publish_webs,
    read_all,
    web_message,
    writer_for,
)
from rigs.nats import NatsServer
from rigs.restoring import restore, write_two_histories

LONG: Final = timedelta(seconds=20)
MANY: Final = 6000
"""More than a reader fetches ahead."""


async def read_on(reader: Reader, read: list[LoggedRecord], end: int) -> None:
    while not read or read[-1].sequence < end:
        records = await reader.next_batch(timeout=LONG)
        assert records, f"nothing came after {read[-1].sequence if read else 'the start'}"
        read += records


@pytest.mark.parametrize("how", ["expired", "pushed out by max_bytes"])
async def test_invariant_13_records_that_expire_while_a_reader_runs_are_not_jumped_over(
    nats_server: NatsServer, how: str
) -> None:
    async with new_log(nats_server) as stream, Reader(stream) as reader:
        await publish_webs(stream, MANY)
        read = await reader.next_batch(timeout=LONG)
        if how == "expired":
            await expire(stream, keep=500)
        else:
            await limit_bytes(stream, (await stream.state()).bytes // 20)
        end = (await stream.state()).first_seq + 100
        with pytest.raises(HistoryLost, match=r"begins at \d+, after \d+, up to which it was read: .* expired"):
            await read_on(reader, read, end)
        assert [each.sequence for each in read] == list(range(1, len(read) + 1))


async def test_a_reader_of_some_partitions_that_asks_for_the_end_finds_a_hole(nats_server: NatsServer) -> None:
    async with new_log(nats_server, partitions=2) as stream, Reader(stream, partitions=[Partition(0)]) as reader:
        await publish_webs(stream, 2 * MANY)
        read = await reader.next_batch(timeout=LONG)
        assert await reader.find_end() == 2 * MANY
        await expire(stream, keep=500)
        with pytest.raises(HistoryLost, match="expired"):
            await reader.find_end()
        assert read


async def test_a_reader_of_some_partitions_looks_for_holes_now_and_then(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CHECK_EVERY", timedelta(0))
    async with new_log(nats_server, partitions=2) as stream, Reader(stream, partitions=[Partition(0)]) as reader:
        await publish_webs(stream, 2 * MANY)
        read = await reader.next_batch(timeout=LONG)
        await expire(stream, keep=500)
        await publish_webs(stream, MANY, version=2)
        with pytest.raises(HistoryLost, match="expired"):
            await read_on(reader, read, 3 * MANY - 10)


async def test_what_expires_after_it_was_read_is_no_hole(nats_server: NatsServer) -> None:
    async with (
        new_log(nats_server, partitions=2) as stream,
        Reader(stream) as one,
        Reader(stream, partitions=[Partition(0)]) as other,
    ):
        of_one: list[LoggedRecord] = []
        of_other: list[LoggedRecord] = []
        for version in range(1, 4):
            await publish_webs(stream, 1000, version=version)
            await read_on(one, of_one, version * 1000)
            await read_on(other, of_other, version * 1000 - 20)
            assert await other.confirm() == await other.find_end() == version * 1000
            await expire(stream, keep=10)
        assert await other.find_end() == await one.find_end() == 3000
        assert len(of_one) == 3000


async def test_what_is_read_up_to_now_is_whole_from_its_start_on(nats_server: NatsServer) -> None:
    async with new_log(nats_server, partitions=2) as stream:
        await publish_webs(stream, 1000)
        records = read_up_to_now(stream, f"levelog.{stream.cluster}.0.>", start=Sequence(100))
        read = [await anext(records)]
        await expire(stream, keep=500)
        with pytest.raises(HistoryLost, match="begins at 501, after 99"):
            read += [each async for each in records]


async def test_tables_that_come_from_later_records_do_not_begin_anywhere(nats_server: NatsServer) -> None:
    """A partition of which nothing was folded is read from the first record on; others were folded beyond it."""
    async with new_log(nats_server) as stream:
        await publish_webs(stream, 1000)
        newest = (await read_all(stream))[99]
        await expire(stream, keep=500)
        async with Reader(stream, newest=(newest.sequence, newest.record_id)) as reader:
            with pytest.raises(HistoryLost, match="begins at 501, after 0"):
                await reader.next_batch(timeout=LONG)


async def test_records_that_were_deleted_are_named_and_passed(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_log(nats_server) as made:
        stream = await deletable(made)
        await publish_webs(stream, 20)
        await delete_records(stream, 8, 9, 15)
        async with Reader(stream, start=Sequence(5)) as reader:
            read: list[LoggedRecord] = []
            await read_on(reader, read, 20)
        assert [each.sequence for each in read] == [5, 6, 7, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20]
    assert "no records 8 to 9" in caplog.text
    assert "no records 15 to 15" in caplog.text


@pytest.mark.parametrize("partitions", [pytest.param(None, marks=pytest.mark.long), [Partition(0), Partition(1)]])
async def test_invariant_13_a_reader_notices_a_restored_log_that_has_grown_past_its_old_end(
    nats_server: NatsServer, tmp_path: Path, partitions: list[Partition] | None
) -> None:
    async with new_log(nats_server, partitions=2) as stream:
        await write_two_histories(nats_server, stream, tmp_path)
        async with Reader(stream, partitions=partitions) as reader:
            read: list[LoggedRecord] = []
            await read_on(reader, read, 20)
            await restore(nats_server, stream, tmp_path)
            with pytest.raises(HistoryLost, match=r"record 20 of stream .* is another one than was read"):
                await reader.next_batch(timeout=LONG)


async def test_invariant_13_a_restored_log_that_has_grown_is_noticed_before_the_next_write(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with new_log(nats_server) as stream:
        publisher, writer = BatchPublisher(stream, may_read=True), writer_for(stream)

        async def write(count: int, version: int) -> None:
            own = publisher if version == 3 else BatchPublisher(stream)
            await own.publish([web_message(writer, f"w-{number}", version) for number in range(count)])

        await write_two_histories(nats_server, stream, tmp_path, write)
        await restore(nats_server, stream, tmp_path)
        with pytest.raises(IdentityMismatch, match=r"record 20 of stream .* is another one than was acknowledged"):
            await publisher.publish([web_message(writer, "w", 4)])
        assert await stream.last_sequence() == 30


async def test_a_reader_that_begins_after_a_known_record_notices_a_restored_log(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with new_log(nats_server) as stream:
        await write_two_histories(nats_server, stream, tmp_path)
        newest = (await read_all(stream))[-1]
        await restore(nats_server, stream, tmp_path)
        known = newest.sequence, newest.record_id
        async with Reader(stream, start=Sequence(16), newest=known) as reader:
            with pytest.raises(HistoryLost, match=r"record 20 of stream .* is another one than was read"):
                await reader.next_batch(timeout=LONG)
