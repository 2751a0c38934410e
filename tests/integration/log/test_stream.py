import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from levelog_base.errors import ConfigurationError, IdentityMismatch, Unavailable
from levelog_base.wire.objects import Cluster, Sequence
from levelog_base.wire.records import ObjectSeen
from levelog_base.wire.subjects import partition_subjects, resource_subjects
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import clusters, ensure_stream, open_stream
from rigs.logs import change_settings, delete_stream, new_log, settings_of, web_message, writer_for
from rigs.nats import NatsServer
from rigs.webs import PODS, WEBS


async def test_a_stream_is_made_once_and_found_again(nats_server: NatsServer) -> None:
    async with new_log(nats_server, partitions=4) as stream:
        again = await ensure_stream(stream.connection, stream.cluster)
        opened = await open_stream(stream.connection, stream.cluster)
        assert again.identity == opened.identity == stream.identity
        assert again.partitions == opened.partitions == 4
        assert opened.max_age == timedelta(days=7)
        assert await clusters(stream.connection) == [stream.cluster]


async def test_records_cannot_be_deleted_or_purged(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        await BatchPublisher(stream).publish([web_message(writer_for(stream), "w", 1)])
        for request, body in (("PURGE", b""), ("MSG.DELETE", b'{"seq":1}')):
            answer = await stream.connection.request(f"$JS.API.STREAM.{request}.{stream.name}", body)
            assert "error" in msgspec.json.decode(answer.data)
        assert await stream.record_at(Sequence(1)) is not None


async def test_another_number_of_partitions_or_age_is_refused(nats_server: NatsServer) -> None:
    async with new_log(nats_server, partitions=4) as stream:
        with pytest.raises(ConfigurationError, match="4 partitions instead of 8"):
            await ensure_stream(stream.connection, stream.cluster, partitions=8)
        with pytest.raises(ConfigurationError, match="max_age"):
            await ensure_stream(stream.connection, stream.cluster, partitions=4, max_age=timedelta(days=1))


async def test_a_stream_that_is_not_levelogs_is_refused_by_what_is_wrong(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        cluster = Cluster("other")
        strange = {"name": f"levelog-{cluster}", "subjects": ["elsewhere.>"], "storage": "memory"}
        await stream.connection.request("$JS.API.STREAM.CREATE.levelog-other", msgspec.json.encode(strange))
        with pytest.raises(ConfigurationError) as raised:
            await open_stream(stream.connection, cluster)
        for word in ("elsewhere", "memory", "atomic batches", "levelog-partitions"):
            assert word in str(raised.value)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"no_ack": True}, "no acknowledgements (no_ack)"),
        ({"max_msg_size": 100_000}, "a limit of the size of messages (max_msg_size)"),
        ({"max_msgs": 5}, "a limit of messages"),
        ({"retention": "interest"}, "retention interest"),
        ({"sources": [{"name": "elsewhere"}]}, "records of other streams (sources)"),
        ({"subject_transform": {"src": "levelog.>", "dest": "elsewhere.>"}}, "other subjects than were written"),
        ({"metadata": {"levelog-partitions": "8"}}, "8 partitions"),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
async def test_invariant_1_settings_that_lose_or_misplace_records_are_refused_at_the_start_and_later(
    nats_server: NatsServer, setting: dict[str, Any], said: str
) -> None:
    async with new_log(nats_server, partitions=4) as stream:
        await stream.verify()
        config = await settings_of(stream)
        elsewhere = {"name": "elsewhere", "subjects": ["elsewhere"]}
        await stream.connection.request("$JS.API.STREAM.CREATE.elsewhere", msgspec.json.encode(elsewhere))
        metadata = config["metadata"] | setting.get("metadata", {})
        await change_settings(stream, **setting | {"metadata": metadata})
        with pytest.raises(ConfigurationError, match=re.escape(said)):
            await stream.verify()
        if "metadata" not in setting:
            with pytest.raises(ConfigurationError, match=re.escape(said)):
                await open_stream(stream.connection, stream.cluster)


async def test_another_age_is_noticed(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        await change_settings(stream, max_age=3600 * 10**9)
        await stream.verify()
        assert stream.max_age == timedelta(hours=1)


async def test_a_log_that_nobody_made_yet_is_unavailable(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        with pytest.raises(Unavailable, match="no log of cluster nobody yet"):
            await open_stream(stream.connection, Cluster("nobody"))


async def test_the_last_record_is_found_by_wildcard_and_any_by_sequence(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        writer = writer_for(stream)
        messages = [web_message(writer, f"web.{number}", number) for number in range(1, 30)]
        await BatchPublisher(stream).publish(messages)
        last = await stream.last_record(resource_subjects(stream.cluster, WEBS))
        assert last is not None
        assert isinstance(last.record, ObjectSeen)
        assert (last.sequence, last.record.key.name, last.record.version) == (29, "web.29", 29)
        assert await stream.last_record(resource_subjects(stream.cluster, PODS)) is None
        in_partition = await stream.last_record(partition_subjects(stream.cluster, last.partition))
        assert in_partition == last
        seventh = await stream.record_at(Sequence(7))
        assert seventh is not None
        assert isinstance(seventh.record, ObjectSeen)
        assert seventh.record.key.name == "web.7"
        assert seventh.record.body == b"{}"
        assert await stream.record_at(Sequence(99)) is None
        assert await stream.record_at(Sequence(0)) is None


async def test_a_stream_that_is_gone_or_made_anew_is_another_one(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        await delete_stream(stream.connection, stream)
        with pytest.raises(IdentityMismatch, match="is gone"):
            await stream.last_sequence()
        with pytest.raises(IdentityMismatch, match="is gone"):
            await stream.record_at(Sequence(1))
        await ensure_stream(stream.connection, stream.cluster)
        with pytest.raises(IdentityMismatch, match="made anew"):
            await stream.last_sequence()
