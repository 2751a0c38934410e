import asyncio
from datetime import timedelta

from levelog_log.notifications import Listener

LONG = timedelta(hours=1)


async def test_a_nudge_before_the_wait_ends_it_and_is_no_notification() -> None:
    listener = Listener()
    listener.nudge()
    async with asyncio.timeout(20):
        assert not await listener.wait(LONG)
    assert not await listener.wait(timedelta(0))


async def test_a_nudge_does_not_hide_a_notification_that_came_before_it() -> None:
    listener = Listener()
    listener.notify()
    listener.nudge()
    assert await listener.wait(LONG)
    assert not await listener.wait(timedelta(0))
