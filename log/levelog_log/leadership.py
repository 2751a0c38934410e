"""Leader election: one of several processes does a task, chosen by a lease on NATS."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from nats.aio.msg import Msg

from levelog.absence import level_of
from levelog_base.errors import LevelogError
from levelog_base.wire.objects import Application
from levelog_log.leases import LEASE, Lease
from levelog_log.stream import LogStream

log = logging.getLogger(__name__)

_LOOK: Final = timedelta(seconds=2)  # how often one that stands by looks; takeover takes a lease and such a look
_RELEASE_LIMIT: Final = timedelta(seconds=2)


class Leadership:
    """One process does this task while others of the application stand by: `await leadership.lead(work)`.

    A process that ends hands over at once. If it is killed or cut off from NATS, another follows within 15 s. Two may
    lead for a moment, for example after a pause, so the work must be safe to do twice. Ingest and `@op.source` use it;
    any name may be the task.
    """

    def __init__(
        self, stream: LogStream, application: Application, task: str, *, holder: str, lasts: timedelta = LEASE
    ) -> None:
        self.is_leading = False
        self._task = task
        self._connection = stream.connection
        self._lease = Lease(stream, application, task, holder=holder, lasts=lasts)
        self._told = ""

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` while this process leads: cancel it if the lead is lost, start it again when it is back.

        Returns when `work` does, and raises what it raises.
        """
        while True:
            taken_at = await self._take()
            try:
                if await self._work(work, taken_at):
                    return
            finally:
                self.is_leading = False
                await self._release()

    async def _work(self, work: Callable[[], Awaitable[None]], taken_at: float) -> bool:
        """Run `work` until it returns or the lease is lost; tells whether it returned."""
        log.info("leads: does %s", self._task, extra={"holder": self._lease.holder})
        self.is_leading = True
        working = asyncio.ensure_future(work())
        keeping = asyncio.ensure_future(self._keep(taken_at))
        try:
            await asyncio.wait((working, keeping), return_when=asyncio.FIRST_COMPLETED)
            is_done = working.done()
        finally:
            for task in (working, keeping):
                task.cancel()
            outcomes = await asyncio.gather(working, keeping, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome
        return is_done

    async def _keep(self, asked_at: float | None) -> None:
        """Renew the lease until it is lost; `asked_at` is when, by the event loop's clock, it was requested."""
        seconds = self._lease.lasts.total_seconds()
        while asked_at is not None:
            try:
                async with asyncio.timeout_at(asked_at + seconds):
                    asked_at = await self._renew(seconds / 3)
            except TimeoutError:
                level = logging.DEBUG if self._connection.absence.is_felt else logging.WARNING
                log.log(level, "no longer leads: the lease of %s could not be renewed in time", self._task)
                return
        log.warning("no longer leads: another process does %s", self._task)

    async def _renew(self, wait_seconds: float) -> float | None:
        """Renew the lease when due, with retries; returns the time of the request, or None if the lease is lost."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(wait_seconds)
            asked_at = loop.time()
            try:
                return asked_at if await self._lease.renew() else None
            except LevelogError as error:
                log.debug("the lease of %s is not renewed: %s", self._task, error)
                wait_seconds = min(wait_seconds, 0.5)

    async def _take(self) -> float:
        """Wait for the lease, and log once who has it; returns when it was requested, by the event loop's clock."""
        loop = asyncio.get_running_loop()
        async with self._releases() as has_changed:
            while True:
                has_changed.clear()
                asked_at = loop.time()
                try:
                    leader = await self._lease.take()
                except LevelogError as error:
                    await self._connection.wait_connected()
                    self._tell(level_of(error), f"the lease of {self._task} cannot be taken: {error}")
                else:
                    if leader is None:
                        self._told = ""
                        return asked_at
                    self._tell(logging.INFO, f"stands by: {leader.holder} does {self._task}")
                try:
                    async with asyncio.timeout(min(_LOOK, self._lease.lasts / 3).total_seconds()):
                        await has_changed.wait()
                except TimeoutError:
                    continue

    @asynccontextmanager
    async def _releases(self) -> AsyncGenerator[asyncio.Event]:
        """Set when the holder lets go; may be missed."""
        has_changed = asyncio.Event()

        async def note(message: Msg) -> None:
            if b'"is_released":true' in message.data:
                has_changed.set()

        stop = await self._connection.subscribe(self._lease.message.subject, note)
        try:
            yield has_changed
        finally:
            await stop()

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(_RELEASE_LIMIT.total_seconds()):
                await self._lease.release()
        except (LevelogError, TimeoutError) as error:
            log.debug("the lease of %s is left to expire: %s", self._task, error)

    def _tell(self, level: int, text: str) -> None:
        if text != self._told:
            self._told = text
            log.log(level, "%s", text)
