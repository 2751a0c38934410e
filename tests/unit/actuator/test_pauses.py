"""How time passes for daemons."""

import asyncio
from datetime import timedelta

from levelog_actuator.daemoncalls import Pauses


async def test_who_goes_on_to_wait_although_it_has_to_end_holds_up_nothing() -> None:
    ending = asyncio.Event()
    ending.set()

    async def deaf() -> None:
        while True:
            await Pauses().pause(ending, timedelta(minutes=1))

    task = asyncio.create_task(deaf())
    for _ in range(3):
        await asyncio.sleep(0)  # returns only if the other one lets it
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
