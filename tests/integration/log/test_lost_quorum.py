"""Three nats-servers of which one is cut off: its old answers are no lost history, and a true loss is told."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

import pytest

from levelog_base.errors import HistoryInDoubt, HistoryLost, IdentityMismatch, Unavailable
from levelog_base.wire.objects import Cluster, Sequence
from levelog_log import doubts
from levelog_log.publisher import BatchPublisher
from levelog_log.reader import Reader
from levelog_log.stream import LogStream, ensure_stream, open_stream
from levelog_log.transport.connection import connect
from rigs.logs import web_message, writer_for
from rigs.natscluster import NAMES, NatsCluster, leader_of
from rigs.waiting import until

CLUSTER: Final = Cluster("test")
LONG: Final = timedelta(seconds=60)


@asynccontextmanager
async def opened(cluster: NatsCluster, name: str) -> AsyncGenerator[LogStream]:
    """The log as one of the servers shows it."""
    async with await connect(cluster.servers[name].url) as connection:
        yield await open_stream(connection, CLUSTER)


async def new_log(cluster: NatsCluster) -> str:
    """Make a log of three replicas; returns the name of the server that leads it."""
    async with await connect(cluster.servers["a"].url) as connection:
        made = await ensure_stream(connection, CLUSTER, replicas=3)
        await publish(made, 10)
        leader = await leader_of(connection, made.name)
        for name in NAMES:
            async with opened(cluster, name) as stream:
                assert await stream.last_sequence() == 10
        return leader


async def publish(stream: LogStream, count: int) -> int:
    writer = writer_for(stream)
    publisher = BatchPublisher(stream, timeout=timedelta(seconds=1))
    return await publisher.publish([web_message(writer, f"w-{n}", 1) for n in range(count)])


async def published(stream: LogStream, count: int) -> None:
    """Publish as soon as a leader takes it."""
    await until(lambda: publish(stream, count), "a leader that takes records", despite=Unavailable, seconds=90)


@pytest.mark.long
@pytest.mark.parametrize("cut", ["the leader", "a follower"])
async def test_invariant_13_a_server_that_is_cut_off_does_not_make_readers_take_history_for_lost(
    nats_cluster: NatsCluster, cut: str
) -> None:
    leader = await new_log(nats_cluster)
    follower = next(name for name in NAMES if name != leader)
    away = leader if cut == "the leader" else follower
    there = next(name for name in NAMES if name not in (leader, follower))
    async with opened(nats_cluster, away) as old, opened(nats_cluster, there) as current:
        nats_cluster.isolate(away)
        await published(current, 10)
        newest = await current.record_at(Sequence(20))
        assert newest is not None
        answers: set[type[BaseException]] = set()
        async with Reader(old, start=Sequence(21), newest=(Sequence(20), newest.record_id)) as reader:

            async def has_stopped_leading() -> bool:
                with pytest.raises(Unavailable) as raised:
                    await reader.find_end()
                answers.add(raised.type)
                return raised.type is Unavailable

            await until(has_stopped_leading, "a server that knows that it leads no more")
            nats_cluster.heal()
            await published(current, 1)
            records = await reader.next_batch(timeout=LONG)
            assert records[0].sequence == 21, "a publish that was sent again may be there twice"
            assert await reader.find_end() >= 21
        assert HistoryInDoubt in answers or cut == "a follower"


async def test_invariant_13_history_that_went_back_on_all_servers_is_told(
    nats_cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubts, "LOST_QUORUM", timedelta(seconds=2))
    await new_log(nats_cluster)
    async with opened(nats_cluster, "a") as stream, Reader(stream, start=Sequence(21), newest=(Sequence(20), "x")) as r:
        with pytest.raises(HistoryLost, match="ends at 10, before 20, which was read: it was rolled back"):
            await asyncio.wait_for(r.next_batch(timeout=LONG), LONG.total_seconds())


async def test_invariant_13_a_log_that_was_made_anew_is_told_by_writers(
    nats_cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await new_log(nats_cluster)
    async with opened(nats_cluster, "a") as stream:
        await stream.connection.request(f"$JS.API.STREAM.DELETE.{stream.name}")
        await ensure_stream(stream.connection, CLUSTER, replicas=3)
        with pytest.raises(HistoryInDoubt, match=r"was made anew at .* asked again for 25 s before that is believed"):
            await stream.state()
        monkeypatch.setattr(doubts, "LOST_QUORUM", timedelta(0))
        with pytest.raises(IdentityMismatch, match="was made anew"):
            await stream.state()
