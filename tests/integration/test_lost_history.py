"""A processor that was cut off from the log, or whose log goes back: it folds before it decides, or all anew."""

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from levelog_base.errors import HistoryLost, IdentityMismatch
from levelog_base.wire.objects import Version
from levelog_base.wire.records import HistoryReverted, ObjectSeen
from levelog_log.messages import MessageWriter
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import LogStream, ensure_stream
from levelog_log.transport.connection import connect
from levelog_processors import waiting
from levelog_store.tables import checkpoints, intents, objects
from rigs.logs import be_back_soon, expire
from rigs.nats import NatsServer
from rigs.processing import CLUSTER, PARTITIONS, Processing
from rigs.restoring import restore, write_two_histories
from rigs.tcpproxy import TcpProxy
from rigs.webs import NOON, PODS, lists_done, web

MANY = 8000
"""More than a reader has fetched ahead when it stands still, and several batches."""


async def publish(stream: LogStream, records: Collection[ObjectSeen]) -> None:
    writer, publisher = MessageWriter(CLUSTER, PARTITIONS, source="test"), BatchPublisher(stream)
    messages = [writer.message(record) for record in records]
    for start in range(0, len(messages), 500):
        await publisher.publish(messages[start : start + 500])


@asynccontextmanager
async def standing_still(
    nats_server: NatsServer, folder: Path
) -> AsyncGenerator[tuple[Processing, TcpProxy, LogStream]]:
    """Processors behind a proxy, and the log as others see it."""
    async with (
        TcpProxy(nats_server.port) as proxy,
        Processing(proxy.url(nats_server.url), f"sqlite:///{folder}/tables.db", cluster=CLUSTER) as stack,
        await connect(nats_server.url) as behind,
    ):
        be_back_soon(behind)
        yield stack, proxy, await ensure_stream(behind, CLUSTER, partitions=PARTITIONS)


async def is_empty(stack: Processing) -> bool:
    return {row["sequence"] for row in await stack.rows(checkpoints)} == {0} and not await stack.rows(objects)


@pytest.mark.parametrize("names", [["one"], ["one", "two"]], ids=["one processor", "two, each with some partitions"])
async def test_invariant_13_what_expired_while_a_processor_stood_still_is_no_silent_hole(
    nats_server: NatsServer, tmp_path: Path, names: list[str]
) -> None:
    async with standing_still(nats_server, tmp_path) as (stack, proxy, stream):
        for name in names:
            await stack.start_more(name)
        await stack.folded(await stack.listed(web("gone", 1, replicas=0), web("shop", 2, replicas=0), version=2))
        proxy.pause()
        await publish(stream, [web(f"w-{n % 100}", n, replicas=0) for n in range(3, MANY)])
        await expire(stream, keep=100)
        proxy.resume()
        errors = [await stack.ended(name) for name in names]
        assert any(isinstance(error, HistoryLost) for error in errors), errors
        assert all(isinstance(error, IdentityMismatch) for error in errors), errors
        assert await is_empty(stack)
        level = await stack.level("gone")
        assert level["status"] == "blocked"
        assert "have expired" in level["reason"]

        await stack.open()
        stack.start()
        await stack.folded(await stack.listed(web("shop", MANY, replicas=0), version=MANY))
        assert (await stack.level("shop"))["status"] == "in_sync"
        assert await stack.find_level("gone") is None


@pytest.mark.parametrize("is_running", [True, pytest.param(False, marks=pytest.mark.long)])
async def test_invariant_13_a_restored_log_that_has_grown_is_folded_from_its_beginning(
    nats_server: NatsServer, tmp_path: Path, *, is_running: bool
) -> None:
    """Noticed when the connection is back, and by a processor that begins at a checkpoint without a look at the log."""
    (tmp_path / "log").mkdir()
    async with standing_still(nats_server, tmp_path) as (stack, _, stream):
        await stack.listed(version=0)

        async def write(count: int, version: int) -> None:
            await publish(stream, [web(f"w-{version}-{n}", version * 100 + n, replicas=0) for n in range(count)])

        await write_two_histories(nats_server, stream, tmp_path / "log", write)
        stack.start()
        await stack.folded(await stream.last_sequence())
        if not is_running:
            await stack.stop()
        await restore(nats_server, stream, tmp_path / "log")
        if not is_running:
            stack.start()
        assert isinstance(await stack.ended(), HistoryLost)
        assert await is_empty(stack)

        await stack.open()
        stack.start()
        await stack.folded(await stream.last_sequence())
        names = {row["name"].rpartition("-")[0] for row in await stack.rows(objects)}
        assert names == {"w-1", "w-2"}


@pytest.mark.parametrize("how", ["lost", "held up"])
async def test_invariant_9_what_happened_while_nobody_read_is_folded_before_anything_is_decided(
    nats_server: NatsServer, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a connection that is lost, and with one that stands still, as in a process that was paused."""
    for patience in ("MOST_HELD_UP", "LOOK_PATIENCE"):
        monkeypatch.setattr(waiting, patience, timedelta(minutes=5))
    monkeypatch.setattr(waiting, "SEVERAL", 1)  # however few come first
    async with standing_still(nats_server, tmp_path) as (stack, proxy, stream):
        processor = stack.start()
        await stack.folded(await stack.listed(web("shop", 1, replicas=0)))
        before = processor.calls.functions["webs/pods"]
        if how == "lost":
            proxy.refuse()
            proxy.cut()
        else:
            proxy.pause()
        await publish(stream, [web("shop", n, replicas=n % 7) for n in range(2, MANY)])
        last = await stream.last_sequence()
        await proxy.accept()
        proxy.resume()
        await stack.folded(last)
        assert processor.calls.functions["webs/pods"] - before == 1


def went_back(since: int, version: int) -> HistoryReverted:
    return HistoryReverted(resource=PODS, since=Version(since), version=Version(version), time=NOON)


async def test_a_write_to_the_history_that_is_gone_is_waited_for_no_more(stack: Processing) -> None:
    row = await stack.first_write()
    of_it = update(intents).where(intents.c.key == row["key"])
    async with stack.database.transaction() as connection:
        await connection.execute(of_it.values(state="written", result_uid="uid-gone", result_version=99))
    await stack.until_folded_only(await stack.mark(went_back(99, 9)))
    begun, ended = lists_done(PODS, 9)
    await stack.mark(begun)
    await stack.folded(await stack.mark(ended))
    assert [each["round"] for each in await stack.rows(intents)] == [1, 2]
    assert [each["state"] for each in await stack.rows(intents)] == ["settled", "pending"]
