"""Kopf's daemons, run as levelog's."""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from levelog.compat.kopf.attempts import LEFT, Attempts, left
from levelog.compat.kopf.failures import HandlerTimeoutError, PermanentError
from levelog.compat.kopf.given.keywords import Body, Meta, ReadOnly
from levelog.compat.kopf.given.lookups import KopfIndex
from levelog.compat.kopf.kinds.declaring import LONGEST, AttemptedHandler
from levelog.daemons import Daemon, RunEnd, StopReason
from levelog.handlers.runs import DaemonHandler
from levelog.indices import LiveIndex
from levelog.layers import Threads

log = logging.getLogger("levelog.compat.kopf")

REFRESH_SECONDS: Final = 1.0
"""How old an index may be that a daemon looks up."""
_CODE: Final = "kopf daemons 2"
"""Stands for this module in fingerprints: raised when the same runs lead to others."""


class DaemonStopped:
    """Whether a daemon has to end: true once it does."""

    def __init__(self, daemon: Daemon[Any, Any]) -> None:
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

    def __init__(self, daemon: Daemon[Any, Any]) -> None:
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


class Living(Mapping[str, Any]):
    """A part of an object as the log last showed it."""

    def __init__(self, look: Callable[[], Mapping[str, Any] | None]) -> None:
        self._look = look

    def __getitem__(self, key: str) -> Any:
        return (self._look() or {})[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._look() or {})

    def __len__(self) -> int:
        return len(self._look() or {})

    def __bool__(self) -> bool:
        return True  # so that it is kept while it is empty


class LastingHandler(AttemptedHandler, DaemonHandler):
    """A function of a Kopf file that runs for as long as its object is there, with keyword arguments."""

    def __init__(
        self,
        name: str,
        attempts: Attempts,
        *,
        operator: str,
        initial_delay: timedelta,
        grace: timedelta,
    ) -> None:
        declared = attempts.declared
        code = (_CODE, attempts.id, declared.limits, declared.param, str(initial_delay))
        self.take(name, attempts, "found", code, timeout=LONGEST)
        self.operator = operator
        self.grace = grace
        self.initial_delay = initial_delay
        self.itself, self.state_type = "daemon", Any
        self.indices = {}
        self.deleting = True
        self.views = {}
        self.function = self._run

    def is_finished(self, end: RunEnd) -> bool:
        """Tell whether it returned by itself, and has left nothing from which it goes on."""
        return end.is_finished and left(end.state) is None

    async def _run(
        self,
        found: Any,
        daemon: Daemon[Any, Any],
        retry: int,
        started: datetime,
        **indices: LiveIndex[Any, Any],
    ) -> None:
        del found  # it changes; the daemon has it
        before, limit = left(daemon.state), self.attempts.declared.limits.timeout
        delay = self.initial_delay if before is None else before.delay
        if before is not None and before.is_over:
            raise PermanentError(before.error)
        if before is not None and limit is not None and started + delay >= before.began + limit:
            raise HandlerTimeoutError(f"{self.attempts.id} has timed out after {limit}: {before.error}")
        if retry == 0 and delay and not await daemon.sleep(delay):
            return
        carried = (daemon.state or {}).get(LEFT)
        values = {name: await index.everything() for name, index in indices.items()}
        beside = [asyncio.create_task(refresh(values, indices))] if indices else []
        told = self._of_object(daemon) | {name: KopfIndex(partial(values.__getitem__, name)) for name in indices}
        body = self._body(daemon)
        try:
            if self.attempts.is_async:
                told["stopped"] = AsyncDaemonStopperChecker(daemon)
                result = await self.attempts.run(body, retry, started, told, carried)
            else:
                told["stopped"] = stopped = SyncDaemonStopperChecker(daemon)
                beside.append(asyncio.create_task(_tell(daemon, stopped)))
                result = await self._in_thread(lambda: self.attempts.run(body, retry, started, told, carried))
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        if result or daemon.state:
            await daemon.save(result or {})

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        """Call the function in a thread of its own, which ends with it."""
        threads = Threads(1)
        try:
            return await threads.run(call)
        finally:
            threads.close()

    def _body(self, daemon: Daemon[Any, Any]) -> Mapping[str, Any]:
        named = {"apiVersion": self.reader.resource.api_version, "kind": self.reader.resource.kind}
        return Living(lambda: {**named, **daemon.object})

    def _of_object(self, daemon: Daemon[Any, Any]) -> dict[str, Any]:
        """The arguments about the object, which change with it."""

        def part(*keys: str) -> Living:
            def look() -> Mapping[str, Any] | None:
                found: Any = daemon.object
                for key in keys:
                    found = found.get(key) or {}
                return found  # type: ignore[no-any-return]

            return Living(look)

        return {
            "body": Body(self._body(daemon)),
            "spec": ReadOnly(part("spec")),
            "status": ReadOnly(part("status")),
            "meta": Meta(part("metadata")),
            "labels": ReadOnly(part("metadata", "labels")),
            "annotations": ReadOnly(part("metadata", "annotations")),
        }


async def _tell(daemon: Daemon[Any, Any], stopped: SyncDaemonStopperChecker) -> None:
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
