import asyncio
import shutil
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from levelog_base.errors import ConfigurationError, IdentityMismatch, LevelogError, Unavailable
from levelog_base.wire.objects import Partition
from levelog_base.wire.objects import Sequence as LogSequence
from levelog_log import appender as appending
from levelog_log.appender import Appender, Lane
from levelog_log.messages import RecordTooLarge
from levelog_log.publisher import MAX_MESSAGES, BatchPublisher
from levelog_log.stream import ensure_stream, open_stream
from levelog_log.transport.jetstream import ErrorAnswer, refusal
from levelog_log.transport.wire import Message
from rigs.logs import (
    MOMENT,
    delete_stream,
    names_and_versions,
    new_log,
    proxied,
    read_all,
    restart,
    web_message,
    writer_for,
)
from rigs.nats import NatsServer
from rigs.restoring import put_back
from rigs.waiting import until


async def test_invariant_1_acknowledged_records_are_read_back_in_order_per_partition(nats_server: NatsServer) -> None:
    async with new_log(nats_server, partitions=4) as stream, Appender(BatchPublisher(stream)) as appender:
        writer = writer_for(stream)

        async def write(name: str) -> None:
            for version in range(1, 101):
                await appender.append(web_message(writer, name, version))

        await asyncio.gather(*(write(f"w-{number}") for number in range(20)))
        everything = await read_all(stream)
        assert [record.sequence for record in everything] == list(range(1, 2001))
        for number in range(4):
            partition = await read_all(stream, [Partition(number)])
            assert partition == [record for record in everything if record.partition == number]
            of_name: dict[str, list[int]] = {}
            for name, version in names_and_versions(partition):
                of_name.setdefault(name, []).append(version)
            assert all(versions == list(range(1, 101)) for versions in of_name.values())


async def test_invariant_1_acknowledged_records_survive_a_killed_server(nats_server: NatsServer) -> None:
    async with new_log(nats_server, partitions=4) as stream, Appender(BatchPublisher(stream)) as appender:
        writer = writer_for(stream)
        acknowledged: dict[int, tuple[str, int]] = {}
        is_over = asyncio.Event()

        async def write(name: str) -> None:
            for version in count(1):
                try:
                    sequence = await appender.append(web_message(writer, name, version))
                except Unavailable:
                    if is_over.is_set():
                        return
                    await stream.connection.wait_connected()
                    continue
                acknowledged[sequence] = (name, version)
                if is_over.is_set():
                    return

        async def have_written(least: int) -> None:
            await until(lambda: len(acknowledged) >= least, f"{least} records")

        async with asyncio.TaskGroup() as tasks:
            for number in range(20):
                tasks.create_task(write(f"w-{number}"))
            for _ in range(3):
                await have_written(len(acknowledged) + 200)
                await restart(nats_server, stream)
            await have_written(len(acknowledged) + 200)
            is_over.set()
        records = {record.sequence: record for record in await read_all(stream)}
        for sequence, expected in acknowledged.items():
            assert names_and_versions([records[sequence]]) == [expected]  # type: ignore[index]


async def test_what_is_appended_together_is_in_the_log_together_or_not_at_all(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "BATCH_MESSAGES", 7)
    async with new_log(nats_server) as stream, Appender(BatchPublisher(stream)) as appender:
        writer = writer_for(stream)

        async def write(task: int) -> None:
            for number in range(10):
                messages = [web_message(writer, f"w-{task}-{number}-{part}", 1) for part in range(5)]
                last = await appender.append(*messages)
                assert last >= 5

        await asyncio.gather(*(write(task) for task in range(8)))
        names = [name.rpartition("-") for name, _ in names_and_versions(await read_all(stream))]
        groups = [names[start : start + 5] for start in range(0, len(names), 5)]
        for group in groups:
            assert len({name[0] for name in group}) == 1
            assert [name[2] for name in group] == ["0", "1", "2", "3", "4"]


async def test_a_batch_that_breaks_off_leaves_nothing(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        writer = writer_for(stream)
        publisher = BatchPublisher(stream)
        halfway = [web_message(writer, f"w-{number}", 1) for number in range(10)]
        for number, message in enumerate(halfway, 1):
            headers = message.headers + b"Nats-Batch-Id: abc\r\nNats-Batch-Sequence: %d\r\n" % number
            await stream.connection.publish_all([message._replace(headers=headers)])
        await publisher.publish([web_message(writer, "after", 1)])
        assert names_and_versions(await read_all(stream)) == [("after", 1)]


async def test_of_two_that_publish_at_once_one_waits_for_the_other(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream, proxied(nats_server) as (proxy, connection):
        publisher, writer = BatchPublisher(await open_stream(connection, stream.cluster)), writer_for(stream)
        proxy.pause("server")  # so that no acknowledgement arrives
        both = [asyncio.create_task(publisher.publish([web_message(writer, name, 1)])) for name in "ab"]
        await until(stream.last_sequence, "the first record", accept=lambda found: found > 0)
        await asyncio.wait(both, timeout=MOMENT.total_seconds())
        assert await stream.last_sequence() == 1
        proxy.resume("server")
        assert await asyncio.gather(*both) == [1, 2]


async def test_a_record_that_is_too_large_has_no_message(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream, Appender(BatchPublisher(stream)) as appender:
        writer = writer_for(stream)
        with pytest.raises(RecordTooLarge, match="its setting max_payload"):
            web_message(writer, "large", 1, body=b"x" * stream.connection.max_payload_bytes)
        with pytest.raises(ValueError, match="at most"):
            await appender.append(*[web_message(writer, "w", 1)] * (MAX_MESSAGES + 1))
        await appender.append(web_message(writer, "small", 2))
        assert names_and_versions(await read_all(stream)) == [("small", 2)]


async def test_batches_are_bounded_by_bytes_and_nothing_is_dropped(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream, Appender(BatchPublisher(stream)) as appender:
        writer = writer_for(stream)
        lane = Lane(appender)
        for version in range(1, 41):
            await lane.submit([web_message(writer, "large", version, body=b"x" * 2_000_000)])
        assert await lane.flush() == 40
        assert names_and_versions(await read_all(stream)) == [("large", version) for version in range(1, 41)]


class LosesOne(BatchPublisher):
    """Loses its third batch on the way, as a broken connection does."""

    batches = 0

    async def publish(self, messages: Sequence[Message]) -> LogSequence:
        self.batches += 1
        if self.batches == 3:
            raise Unavailable("the acknowledgement did not arrive")
        return await super().publish(messages)


async def test_no_record_of_a_lane_overtakes_a_lost_one(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "BATCH_MESSAGES", 10)
    async with new_log(nats_server) as stream, Appender(LosesOne(stream)) as appender:
        writer = writer_for(stream)
        lane, other = Lane(appender), Lane(appender)

        async def feed() -> None:
            for version in count(1):
                await lane.submit([web_message(writer, "w", version)])
                await other.submit([web_message(writer, "v", version)])
                if version % 50 == 0:
                    await asyncio.sleep(0)

        with pytest.raises(Unavailable):
            await feed()
        for spent in (lane, other):
            with pytest.raises(Unavailable):
                await spent.submit([web_message(writer, "w", 100_000)])
            with pytest.raises(Unavailable):
                await spent.flush()
        fresh = Lane(appender)
        await fresh.submit([web_message(writer, "w", 200_000)])
        await fresh.flush()
        written = names_and_versions(await read_all(stream))
        assert [version for name, version in written if name == "w"] == [*range(1, 11), 200_000]
        assert [version for name, version in written if name == "v"] == list(range(1, 11))


async def test_invariant_13_a_log_that_was_made_anew_is_noticed_before_the_next_write(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        publisher, writer = BatchPublisher(stream), writer_for(stream)
        await publisher.publish([web_message(writer, "w", number) for number in range(1, 4)])
        await restart(nats_server, stream, lambda: shutil.rmtree(nats_server.store_dir))
        fresh = await ensure_stream(stream.connection, stream.cluster)
        with pytest.raises(IdentityMismatch, match="made anew"):
            await publisher.publish([web_message(writer, "w", 4)])
        assert await fresh.last_sequence() == 0


async def test_invariant_13_a_log_that_was_rolled_back_is_noticed_before_the_next_write(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with new_log(nats_server) as stream:
        publisher, writer = BatchPublisher(stream), writer_for(stream)
        await publisher.publish([web_message(writer, "w", 1)])
        await restart(nats_server, stream, lambda: shutil.copytree(nats_server.store_dir, tmp_path / "older"))
        await publisher.publish([web_message(writer, "w", number) for number in range(2, 5)])
        await restart(nats_server, stream, lambda: put_back(nats_server, tmp_path / "older"))
        with pytest.raises(IdentityMismatch, match="rolled back"):
            await publisher.publish([web_message(writer, "w", 5)])
        assert await stream.last_sequence() == 1


async def test_a_stream_that_is_gone_is_told_as_such(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream, Appender(BatchPublisher(stream)) as appender:
        await delete_stream(stream.connection, stream)
        with pytest.raises(IdentityMismatch, match="is gone"):
            await appender.append(web_message(writer_for(stream), "w", 1))


async def test_a_closed_appender_fails_what_waits(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        writer = writer_for(stream)
        async with Appender(BatchPublisher(stream)) as appender:
            waiting = [asyncio.create_task(appender.append(web_message(writer, "w", n))) for n in range(1, 2000)]
            await waiting[0]
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert any(isinstance(outcome, LevelogError) for outcome in ended)
        with pytest.raises(Unavailable, match="stopping"):
            await appender.append(web_message(writer, "w", 1))


async def test_a_batch_of_which_the_server_lost_the_beginning_is_tried_again(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_log(nats_server) as stream:
        publisher, writer = BatchPublisher(stream), writer_for(stream)
        batch = [web_message(writer, "w", version) for version in (1, 2, 3)]
        publish_all = stream.connection.client.publish_all

        async def lose_the_first(messages: Sequence[Message]) -> None:
            await publish_all(messages[1:])

        with monkeypatch.context() as patched:
            patched.setattr(stream.connection.client, "publish_all", lose_the_first)
            with pytest.raises(Unavailable, match="10176"):  # as after another server of the cluster became the leader
                await publisher.publish(batch)
        assert await publisher.publish(batch) == 3


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (10058, ConfigurationError),
        (10174, ConfigurationError),
        (10052, ConfigurationError),
        (10005, Unavailable),
        (10009, Unavailable),
        (10008, Unavailable),
        (0, Unavailable),
    ],
)
def test_what_jetstream_refuses_is_tried_again_unless_it_names_a_setting(code: int, kind: type[LevelogError]) -> None:
    assert isinstance(refusal("asking", ErrorAnswer(err_code=code, description="no")), kind)
