"""Kopf's daemons, run as levelog's."""

import asyncio
import logging
import threading
from collections.abc import Collection, Coroutine, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from levelog.compat.kopf.attempts import KopfAdapter
from levelog.compat.kopf.given.keywords import Body
from levelog.compat.kopf.given.lookups import KopfIndex
from levelog.compat.kopf.handlererrors import HandlerTimeoutError, PermanentError
from levelog.compat.kopf.subhandlers import in_thread
from levelog.daemons import StopReason
from levelog.indices import LiveIndex
from levelog.layers import CallResult, Living

log = logging.getLogger("levelog.compat.kopf")

REFRESH_SECONDS: Final = 1.0
"""How old an index may be that a daemon looks up."""


class DaemonStopped:
    """Whether a daemon has to end: true once it does."""

    def __init__(self, daemon: Living) -> None:
        self._daemon = daemon

    def __bool__(self) -> bool:
        return self.is_set()

    def is_set(self) -> bool:
        """Whether it has to end."""
        return self._daemon.reason is not None

    @property
    def reason(self) -> StopReason | None:
        """Why, in levelog's words; None: it may go on."""
        return self._daemon.reason


class AsyncDaemonStopperChecker(DaemonStopped):
    """What an async daemon is given as `stopped`."""

    async def wait(self, timeout: float | None = None) -> "AsyncDaemonStopperChecker":  # noqa: ASYNC109 - as in Kopf
        """Wait for so many seconds, or until it has to end; true if it has to."""
        if timeout is None:
            await self._daemon.stopped()
        else:
            await self._daemon.sleep(timedelta(seconds=timeout))
        return self


class SyncDaemonStopperChecker(DaemonStopped):
    """What a daemon that is not async is given as `stopped`."""

    def __init__(self, daemon: Living) -> None:
        super().__init__(daemon)
        self._loop = asyncio.get_running_loop()
        self.ended = threading.Event()
        """Set once it has to end."""
        self.is_asked = asyncio.Event()
        """Set once the daemon asks: what it does first is done."""

    def is_set(self) -> bool:
        """Whether it has to end."""
        self._note()
        return super().is_set()

    def wait(self, timeout: float | None = None) -> "SyncDaemonStopperChecker":
        """Wait for so many seconds, or until it has to end; true if it has to."""
        self._note()
        self.ended.wait(timeout)
        return self

    def _note(self) -> None:
        if not self.is_asked.is_set():
            self._loop.call_soon_threadsafe(self.is_asked.set)


class LastingAdapter(KopfAdapter):
    """Runs a function of a Kopf file for as long as its object is there."""

    initial_delay: timedelta = timedelta(0)

    async def run(
        self, daemon: Living, retry: int, started: datetime, indices: Mapping[str, LiveIndex[Any, Any]]
    ) -> None:
        """Run the function; what it asks to have written and what it has left is the state."""
        before, limit = None if daemon.state is None else daemon.state.left, self.declared.limits.timeout
        delay = self.initial_delay if before is None else before.delay
        if before is not None and before.is_over:
            raise PermanentError(before.error)
        if before is not None and limit is not None and started + delay >= before.began + limit:
            raise HandlerTimeoutError(f"{self.id} has timed out after {limit}: {before.error}")
        if retry == 0 and delay and not await daemon.sleep(delay):
            return
        values = {name: await index.everything() for name, index in indices.items()}
        beside = [asyncio.create_task(refresh(values, indices))] if indices else []
        told: dict[str, Any] = {name: KopfIndex(partial(values.__getitem__, name)) for name in indices}
        body = Body(lambda: {**self.named, **daemon.object})
        try:
            if self.is_async:
                told["stopped"] = AsyncDaemonStopperChecker(daemon)
                result = await self.attempt(body, retry, started, told, before)
            else:
                told["stopped"] = stopped = SyncDaemonStopperChecker(daemon)
                beside.append(asyncio.create_task(_tell(daemon, stopped)))
                result = await in_thread(partial(self.attempt, body, retry, started, told, before))
                result = await result if isinstance(result, Coroutine) else result
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        if result or daemon.state:
            await daemon.save(result or CallResult())


async def _tell(daemon: Living, stopped: SyncDaemonStopperChecker) -> None:
    try:
        await stopped.is_asked.wait()
        await daemon.stopped()
    finally:
        stopped.ended.set()


async def refresh(values: dict[str, Mapping[Any, Collection[Any]]], indices: Mapping[str, LiveIndex[Any, Any]]) -> None:
    """Read the indices again and again, for ever; one that cannot be read is looked up as it was."""
    while True:
        await asyncio.sleep(REFRESH_SECONDS)
        for name, index in indices.items():
            try:
                values[name] = await index.everything()
            except Exception as error:  # noqa: BLE001 - nobody waits for this task: it would end unseen
                log.warning("index %s is looked up as it was: %s", name, error)
