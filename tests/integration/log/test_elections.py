"""Three nats-servers that elect a leader while records are written: nothing is lost, reordered or written twice."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from nats.aio.msg import Msg

from levelog_base.wire.objects import Cluster
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import LogStream, ensure_stream
from levelog_log.transport.connection import connect
from levelog_log.transport.wire import Message
from rigs.logs import names_and_versions, read_all, web_message, writer_for
from rigs.natscluster import NAMES, NatsCluster

BATCH = 10


async def test_invariant_1_an_acknowledgement_that_is_lost_is_asked_for_again(
    nats_cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await connect(nats_cluster.servers["a"].url) as connection:
        stream = await ensure_stream(connection, Cluster("test"))
        publisher, writer = BatchPublisher(stream), writer_for(stream)
        ask, sent = connection.ask, list[str]()

        async def lose_the_first(messages: Sequence[Message], *given: Any) -> Msg:
            answer = await ask(messages, *given)
            if messages[-1].subject.startswith("levelog."):
                sent.append(messages[-1].subject)
                if len(sent) == 1:
                    await asyncio.get_running_loop().create_future()
            return answer

        monkeypatch.setattr(connection, "ask", lose_the_first)
        for count in (3, 1):  # a batch, and a message on its own
            sent.clear()
            last = await publisher.publish([web_message(writer, f"w-{count}-{n}", 1) for n in range(count)])
            assert last == await stream.last_sequence()
            assert len(sent) == (3 if count == 3 else 2), "sent, sent again, and of a batch its place is asked for"
        assert await publisher.publish([web_message(writer, "after", 1)]) == 5
        assert [name for name, _ in names_and_versions(await read_all(stream))] == [
            *("w-3-0", "w-3-1", "w-3-2", "w-1-0", "after")
        ]


@pytest.mark.parametrize("how", ["steps down", "is killed"])
async def test_invariant_1_a_leader_that_goes_during_a_burst_loses_and_repeats_nothing(
    nats_cluster: NatsCluster, how: str
) -> None:
    async with await connect(nats_cluster.servers["a"].url) as connection:
        name = (await ensure_stream(connection, Cluster("test"))).name
    leader = await nats_cluster.leader(name)
    follower = next(each for each in NAMES if each != leader)
    async with await connect(nats_cluster.servers[follower].url) as connection:
        stream = await ensure_stream(connection, Cluster("test"))

        async def steps_down() -> None:
            for _ in range(5):
                await connection.request_again(f"$JS.API.STREAM.LEADER.STEPDOWN.{name}")

        async def is_killed() -> None:
            nats_cluster.servers[leader].kill()

        written = await burst(stream, {"steps down": steps_down, "is killed": is_killed}[how])
        expected = [(f"w-{number}", version) for version in range(1, written + 1) for number in range(BATCH)]
        assert names_and_versions(await read_all(stream)) == expected


async def burst(stream: LogStream, event: Callable[[], Awaitable[None]]) -> int:
    """Publish batch after batch while something happens, and some more; returns how many, none of which failed."""
    publisher, writer = BatchPublisher(stream), writer_for(stream)
    done = after = 0
    happening: asyncio.Task[None] | None = None
    while after < 20:
        done += 1
        await publisher.publish([web_message(writer, f"w-{number}", done) for number in range(BATCH)])
        if done == 20:
            happening = asyncio.ensure_future(event())
        if happening is not None and happening.done():
            happening.result()
            after += 1
    return done
