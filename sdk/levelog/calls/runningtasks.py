"""Tasks that one part of a process runs beside each other, and waits for before it ends: calls, and writes."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from levelog.calls.caller import CANCELLATION_TIME


class RunningTasks(set[asyncio.Task[None]]):
    """Tasks that run; each leaves the set as it ends."""

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run some work beside the caller."""
        task = asyncio.create_task(work, name=name)
        self.add(task)
        task.add_done_callback(self.discard)
        return task

    async def drain(self, within: timedelta = timedelta(0)) -> None:
        """Wait for all of them for so long, then cancel those that are left."""
        try:
            if self:
                await asyncio.wait(set(self), timeout=within.total_seconds())
        finally:  # who waits may be cancelled
            left = set(self)
            for task in left:
                task.cancel()
        if left:
            await asyncio.wait(left, timeout=2 * CANCELLATION_TIME.total_seconds())
