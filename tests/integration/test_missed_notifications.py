"""What no notification, record or answer tells of is decided on all the same, by the clock."""

import asyncio
from datetime import timedelta

import pytest

from levelog import Intent, Level, Operator, Resource
from levelog.levels import Levels
from levelog_log.notifications import Listener, Notifier, Topic
from levelog_log.reader import Reader
from levelog_processors.waiting import HighWatermark, Pace
from levelog_store.tables import levels
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.typed import Web
from rigs.waiting import until
from rigs.webs import pod, web

NAMES = [f"shop{number}" for number in range(10)]


class Pod(Resource, version="v1", plural="pods"):
    """Only its name is read."""


async def all_are(stack: Processing, view: str, status: str) -> None:
    async def is_there() -> bool:
        rows = [row for row in await stack.rows(levels) if row["view"] == view]
        return [row["status"] for row in rows] == [status] * len(NAMES)

    await until(is_there, f"all levels of {view} {status}")


async def test_invariant_5_levels_of_another_processor_are_seen_although_nobody_tells_of_them(
    nats_server: NatsServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelog_processors.waiting.RESYNC", timedelta(seconds=0.5))
    publish = Notifier.publish

    async def losing(notifier: Notifier, topic: Topic, *, but_not: Listener | None = None) -> None:
        if topic != Topic.WAKE:
            await publish(notifier, topic, but_not=but_not)

    monkeypatch.setattr(Notifier, "publish", losing)
    op = Operator("webs")

    @op.view
    def size(web: Web) -> Level[int]:
        return Level(1, web.spec.replicas)

    @op.view(levels_of=[Web])
    def owner(pod: Pod, levels: Levels) -> Level[dict[str, str]]:
        found = levels.of(Web, pod.metadata.name.partition("-")[0])
        return Level({}, {name: each.status for name, each in found.items() if each.status != "in_sync"})

    async with Processing(nats_server.url, postgres_url, [op]) as stack:
        stack.start("one")
        await stack.start_more("two")
        await stack.listed(*(web(name, 1) for name in NAMES), *(pod(f"{name}-0", 2) for name in NAMES), version=9)
        await all_are(stack, "webs/owner", "in_sync")
        await stack.tell(*(web(name, 10, replicas=2) for name in NAMES))
        await all_are(stack, "webs/owner", "drifting")


async def test_a_function_that_returns_while_nats_gives_no_answer_is_heard_and_the_loop_does_not_stall(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelog_processors.waiting.RESYNC", timedelta(hours=1))
    monkeypatch.setattr("levelog_processors.waiting.SEVERAL", 1)
    nats, is_called, returns = NatsServer(), asyncio.Event(), asyncio.Event()
    look = HighWatermark.look

    async def stopping(high_watermark: HighWatermark, folded: int) -> None:
        if is_far := is_called.is_set() and folded > 0:
            nats.pause()
        await look(high_watermark, folded)
        if is_far:
            returns.set()

    monkeypatch.setattr(HighWatermark, "look", stopping)
    op = Operator("webs")

    @op.view
    def size(web: Web) -> Level[int]:
        return Level(1, web.spec.replicas)

    @op.reconcile(size)
    async def slow(web: Web, level: Level[int]) -> list[Intent]:
        is_called.set()
        await returns.wait()
        return []

    try:
        await nats.start()
        async with Processing(nats.url, database_url, [op]) as stack:
            processor = stack.start()
            await stack.listed(web("shop", 1, replicas=2), version=1)
            await is_called.wait()
            wakes_nothing = web("shop", 2, replicas=2)
            telling = asyncio.create_task(stack.tell(wakes_nothing))

            async def is_decided() -> bool:
                assert not processor.trouble()
                return [row["round"] for row in await stack.rows(levels)] == [1]

            await until(is_decided, "the round")
            nats.resume()
            await telling
    finally:
        nats.stop()


async def test_an_answer_of_the_log_is_heard_as_soon_as_it_comes_however_fast_the_passes_follow_each_other(
    nats_server: NatsServer, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelog_processors.waiting.RESYNC", timedelta(hours=1))
    rests, end = asyncio.Event(), Reader.find_end

    def left(_: Pace) -> float:
        rests.set()
        return 0.5

    async def answering(reader: Reader) -> int:
        await rests.wait()
        return await end(reader)

    monkeypatch.setattr(Pace, "left", property(left))
    monkeypatch.setattr(Reader, "find_end", answering)
    async with Processing(nats_server.url, database_url) as stack:
        processor = stack.start()
        await until(lambda: not processor.health.is_behind, "the answer")
