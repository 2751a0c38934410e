import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from levelog import LiveIndex, Owner
from levelog_base.wire.objects import Uid, Version
from levelog_base.wire.records import BookmarkNoted
from levelog_processors.live import LiveIndices
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.waiting import until
from rigs.webs import NOON, PODS, lists_done, pod, web

Picture = tuple[str, str]
Images = LiveIndex[Owner, Picture]
NEVER = timedelta(hours=1)
DEADLINE = 60


def of(uid: str) -> Owner:
    """The key of what a Web controls."""
    return Owner("example.com", "Web", "default", Uid(uid))


def live_indices(stack: Processing, resync: timedelta = NEVER) -> LiveIndices:
    return LiveIndices(stack.database, stack.scope, stack.program, stack.notifier, resync=resync)


def images(live: LiveIndices) -> Images:
    return live.index("webs/images", Picture)


async def is_waiting(live: LiveIndices, count: int) -> None:
    """Wait until so many iterations have taken what is there, so that only a change brings them on."""

    async def has_settled() -> bool:
        await asyncio.sleep(0)
        return sum(each.is_idle for each in live.waiting) == count

    await until(has_settled, what=f"{count} iterations that wait")


async def test_values_are_those_of_now_and_then_those_of_each_change(processing: partial[Processing]) -> None:
    async with processing() as stack, live_indices(stack) as live:
        stack.on_keys = live.tell
        await stack.folded(await _started(stack, pod("shop-0", 2, owner="uid-shop")))
        assert await images(live).get(of("uid-shop")) == (("shop-0", "a"),)
        assert await images(live).get(of("uid-nobody")) == ()
        async with asyncio.timeout(DEADLINE):
            changes = images(live).changes(of("uid-shop"))
            assert await anext(changes) == (("shop-0", "a"),)
            await stack.tell(pod("other-0", 3, owner="uid-other"), pod("shop-0", 4, owner="uid-shop", image="b"))
            assert await anext(changes) == (("shop-0", "b"),)


async def test_the_whole_of_an_index_is_read_again_only_after_a_change(processing: partial[Processing]) -> None:
    async with processing() as stack, live_indices(stack) as live:
        await stack.folded(await _started(stack, pod("shop-0", 2, owner="uid-shop")))
        found = await images(live).everything()
        assert found == {of("uid-shop"): (("shop-0", "a"),)}
        assert await images(live).everything() is found
        assert await live.index("webs/images", Any).everything() == {of("uid-shop"): (["shop-0", "a"],)}
        await stack.folded(
            await stack.tell(pod("other-0", 3, owner="uid-other"), pod("shop-0", 4, owner="uid-shop", image="b"))
        )
        assert await images(live).everything() == {
            of("uid-shop"): (("shop-0", "b"),),
            of("uid-other"): (("other-0", "a"),),
        }


async def test_what_another_processor_folds_is_told_by_its_notification(
    nats_server: NatsServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Processing(nats_server.url, postgres_url) as stack, live_indices(stack) as live:
        monkeypatch.setattr(stack.program, "followed", {"webs/images"})  # as with a daemon that is given it
        stack.start("one")
        await stack.start_more("two")
        await stack.folded(await stack.listed(web("shop", 1), version=2))
        waiting = [
            asyncio.create_task(images(live).until(of(f"uid-{n}"), lambda values: len(values) == 1)) for n in range(8)
        ]
        await is_waiting(live, 8)
        await stack.tell(*[pod(f"pod-{n}", 10 + n, owner=f"uid-{n}") for n in range(8)])
        async with asyncio.timeout(DEADLINE):
            assert await asyncio.gather(*waiting) == [((f"pod-{n}", "a"),) for n in range(8)]


async def test_a_change_whose_notification_was_lost_is_found_by_the_resync(processing: partial[Processing]) -> None:
    async with processing() as stack, live_indices(stack, timedelta(milliseconds=50)) as live:
        await stack.folded(await _started(stack))
        waiting = asyncio.create_task(images(live).until(of("uid-shop"), bool))
        await is_waiting(live, 1)
        await stack.tell(pod("shop-0", 3, owner="uid-shop"))
        async with asyncio.timeout(DEADLINE):
            assert await waiting == (("shop-0", "a"),)


async def test_an_iteration_that_is_cancelled_or_left_leaves_nothing_behind(processing: partial[Processing]) -> None:
    async with processing() as stack, live_indices(stack) as live:
        await stack.folded(await _started(stack))
        tasks = [asyncio.create_task(images(live).until(of("uid-shop"), bool)) for _ in range(3)]
        await is_waiting(live, 3)
        async for _ in images(live).changes(of("uid-shop")):
            break
        for task in tasks:
            task.cancel()
        results: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert live.waiting == set()


async def test_contact_tells_when_the_watch_was_heard_of_and_whether_it_is_listed_again(
    processing: partial[Processing],
) -> None:
    async with processing() as stack, live_indices(stack) as live:
        assert await images(live).contact() == (True, None)
        await stack.folded(await _started(stack))
        assert await images(live).contact() == (False, NOON)
        later = NOON + timedelta(minutes=1)
        await stack.folded(await stack.mark(BookmarkNoted(resource=PODS, version=Version(9), time=later)))
        assert await images(live).contact() == (False, later)
        begun, ended = lists_done(PODS, 10)
        await stack.until_folded_only(await stack.mark(begun))
        assert (await images(live).contact()).is_stale
        await stack.folded(await stack.mark(ended))
        assert not (await images(live).contact()).is_stale


async def _started(stack: Processing, *more: Any) -> int:
    last = await stack.listed(web("shop", 1), *more, version=2)
    stack.start()
    return last
