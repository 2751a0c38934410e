"""What one of several processes does while the others stand by."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from nats.aio.msg import Msg

from levelog.errors import LevelogError
from levelog.wire.objects import Application
from levelog_log.leases import LEASE, Lease
from levelog_log.stream import LogStream

log = logging.getLogger(__name__)

_LOOK: Final = timedelta(seconds=2)  # how often one that stands by looks; takeover takes a lease and such a look
_RELEASE_LIMIT: Final = timedelta(seconds=2)


class Leadership:
    """One process that has this task does it, others of the application stand by: `await leadership.lead(work)`.

    One that ends hands over at once. One that is killed or cut off from NATS is followed within 15 s. Two may lead for
    a moment, as when one was paused: what is done while leading has to bear being done twice. Ingest and `@op.source`
    use it; any name may be the task.
    """

    def __init__(
        self, stream: LogStream, application: Application, task: str, *, holder: str, lasts: timedelta = LEASE
    ) -> None:
        self.is_leading = False
        self._task = task
        self._lease = Lease(stream, application, task, holder=holder, lasts=lasts)
        self._told = ""

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` while this process leads: cancel it when the lead is lost, begin it again when it is back.

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
        """Work until that is done, or the lease is lost; tells which."""
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
        """Renew the lease, which was asked for at that time of the event loop, until it is lost."""
        seconds = self._lease.lasts.total_seconds()
        while asked_at is not None:
            try:
                async with asyncio.timeout_at(asked_at + seconds):
                    asked_at = await self._renew(seconds / 3)
            except TimeoutError:
                log.warning("leads no more: the lease of %s could not be renewed in time", self._task)
                return
        log.warning("leads no more: another process does %s", self._task)

    async def _renew(self, wait_seconds: float) -> float | None:
        """Renew it when that is due, for as often as it takes; when that was asked for, or None if it is another's."""
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
        """Wait until the lease is ours, saying once who has it; when, by the event loop, it was asked for."""
        loop = asyncio.get_running_loop()
        async with self._releases() as has_changed:
            while True:
                has_changed.clear()
                asked_at = loop.time()
                try:
                    held = await self._lease.take()
                except LevelogError as error:
                    await self._lease.connection.wait_connected()
                    self._tell(logging.WARNING, f"the lease of {self._task} cannot be taken: {error}")
                else:
                    if held is None:
                        self._told = ""
                        return asked_at
                    self._tell(logging.INFO, f"stands by: {held.holder} does {self._task}")
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

        connection = self._lease.connection
        subscription = await connection.subscribe(self._lease.subject, note)
        try:
            yield has_changed
        finally:
            if not connection.client.is_closed:
                await subscription.unsubscribe()

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
