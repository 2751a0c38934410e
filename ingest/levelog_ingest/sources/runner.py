"""Runs one source for ever, through failures of its function."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn

from levelog.layers import FunctionCaller, about, containing, described, tell_fault
from levelog.resources import External, Gone, Traced
from levelog.sources import SOURCE_TIME, SourceHandler
from levelog_base.errors import ConfigurationError, IdentityMismatch, LevelogError
from levelog_base.secrets.redaction import Redactor
from levelog_ingest.sources.known import read_log_state
from levelog_ingest.sources.sourcelog import SourceLog
from levelog_ingest.status import LONGEST, Backoff, Progress, ResourceStatus, Troubles, WatchedResource
from levelog_log.appender import Appender
from levelog_log.stream import LogStream

log = logging.getLogger(__name__)


_PATIENCE: Final = 5.0  # seconds for a cancelled function to end
_FIRST: Final = timedelta(seconds=1)
_LONGEST_OF_ALL: Final = timedelta(minutes=5)
_FAR_SECONDS: Final = timedelta(days=365).total_seconds()


class SourceFault(LevelogError):
    """A source's function failed; the message does not name the function."""


class SourceCalls:
    """Calls one source's function, by what calls all users' functions."""

    def __init__(self, source: SourceHandler) -> None:
        self._source = source
        self._caller = FunctionCaller(threads=1, subject=str(source.resource.group_resource))

    async def poll(self) -> list[Any]:
        """Call the function for a whole set. Raises SourceFault from its exception."""
        begin, function = self._source.begin, self._source.function
        is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        call = (lambda: _gathered(begin)) if is_async else (lambda: as_set(begin()))
        limit = self._source.timeout or SOURCE_TIME
        try:
            found: list[Any] = await self._caller.run(self._source, call, limit, is_async=is_async)
        except Exception as error:
            raise _fault(error) from error
        return found

    async def aclose(self) -> None:
        """End what still runs of the function, as far as it can be ended."""
        await self._caller.close()

    async def watch(self) -> AsyncGenerator[Any]:
        """Run the function, an async generator, and pass on what it yields, sets as lists.

        Raises SourceFault from its exception.
        """
        said: asyncio.Queue[Any] = asyncio.Queue(1)

        async def pump() -> None:
            # In one task from end to end, since time limits and groups inside of it belong to their task.
            with containing(asyncio.CancelledError):
                async with aclosing(self._source.begin()) as items:
                    async for item in items:
                        await said.put(as_set(item) if is_whole(item) else item)

        limit = None if self._source.timeout is None else self._source.timeout.total_seconds()
        pumping = asyncio.create_task(pump(), name=str(self._source))
        # what it raises once it is cancelled is looked at, so that asyncio does not report it in the user's words
        pumping.add_done_callback(lambda task: task.cancelled() or task.exception())
        getting: asyncio.Task[Any] | None = None
        try:
            while True:
                getting = asyncio.create_task(said.get())
                await asyncio.wait({pumping, getting}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                if getting.done():
                    yield getting.result()
                elif not pumping.done():
                    raise SourceFault(f"yielded nothing within {limit:g} s")
                elif pumping.cancelled():
                    raise SourceFault("was cancelled from within")
                elif (error := pumping.exception()) is not None:
                    raise _fault(error) from error
                else:
                    return
        finally:
            if getting is not None:
                getting.cancel()
            pumping.cancel()
            await asyncio.wait({pumping}, timeout=_PATIENCE)  # one that goes on is left behind


def is_whole(item: object) -> bool:
    """Whether what a generator yielded is a set, and not one change."""
    return not isinstance(item, External | Traced | Gone)


def as_set(result: Any) -> list[Any]:
    """The result as a list. Raises SourceFault if it is no set of records."""
    if isinstance(result, External | Traced | Gone | str | bytes) or not hasattr(result, "__iter__"):
        raise SourceFault(f"gave something of class {type(result).__name__} where a set of records is needed")
    return list(result)


async def _gathered(begin: Callable[[], Any]) -> list[Any]:
    result = begin()
    if inspect.isasyncgen(result):
        async with aclosing(result) as items:
            return [item async for item in items]
    return as_set(await result)


def _fault(error: BaseException) -> SourceFault:
    return error if isinstance(error, SourceFault) else SourceFault(described(error))


class SourceRunner:
    """Runs one source for ever, in one process at a time; a process that takes over reads its state from the log.

    The version of a set is the time of the observation, so that a process that was paused cannot bring back an old one.
    """

    def __init__(
        self,
        source: SourceHandler,
        stream: LogStream,
        appender: Appender,
        redactor: Redactor,
        *,
        on_change: Progress | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        resource = source.resource
        watched = WatchedResource(resource=resource.group_resource, version=resource.version)
        self.status = ResourceStatus(watched=watched, on_change=on_change)
        self._source = source
        self._name = f"{source.operator}/{source.name}"
        self._stream = stream
        self._appender = appender
        self._redactor = redactor
        self._clock = clock
        self._calls = SourceCalls(source)
        longest = min(max(source.every or LONGEST, LONGEST), _LONGEST_OF_ALL)
        self._backoff = Backoff(_FIRST, longest)
        self._away = Backoff()
        self._troubles = Troubles(self.status)

    async def run(self) -> NoReturn:
        """Run until cancelled. Raises IdentityMismatch, ConfigurationError."""
        about(source=str(self.status.watched))
        async with aclosing(self._calls):
            while True:
                try:
                    await self._follow()
                except (IdentityMismatch, ConfigurationError):
                    raise
                except LevelogError as error:
                    self._troubles.tell("retrying", str(error))
                    await asyncio.sleep(self._away.failed().total_seconds())
                    await self._stream.connection.wait_connected()

    async def _follow(self) -> NoReturn:
        """Record what the source gives, as long as the log takes it."""
        state = await read_log_state(self._stream, self._source.resource.group_resource)
        if state.writer not in ("", self._name):
            log.warning(
                "%s was recorded by %s before, and now by %s; if both run, they overwrite each other: "
                "give one of the classes another plural",
                self.status.watched,
                state.writer,
                self._name,
                extra={"resource": str(self.status.watched)},
            )
        written = SourceLog(self._source, self._stream, self._appender, self._redactor, state, self._clock)
        while True:
            try:
                await (self._watch(written) if self._source.every is None else self._poll(written))
                self._backoff.succeeded()
            except SourceFault as fault:
                detail = self._redactor.redact_text(f"{self._source}: {fault}")
                if self._troubles.note("retrying", detail):
                    cause = fault.__cause__ or fault
                    tell_fault(
                        "source",
                        self._name,
                        self._source.function,
                        cause,
                        subject=str(self.status.watched),
                        clean=self._redactor.redact_text,
                    )
                await written.lost(detail)
                await asyncio.sleep(self._backoff.failed().total_seconds())

    async def _poll(self, written: SourceLog) -> None:
        assert self._source.every is not None  # noqa: S101 - else it is watched
        self._begin(written)
        await self._hear(written, await written.whole(await self._calls.poll()))
        await asyncio.sleep(self._source.every.total_seconds())

    async def _watch(self, written: SourceLog) -> None:
        """Run the generator once; it begins with a whole set, and ends at the latest when a list is due."""
        self._begin(written)
        has_begun = False
        limit = asyncio.timeout(None)
        try:
            async with limit, aclosing(self._calls.watch()) as said:
                async for item in said:
                    if is_whole(item):
                        await self._hear(written, await written.whole(item))
                        limit.reschedule(self._seconds_until(written.list_due()))
                    elif has_begun:
                        await self._hear(written, await written.change(item))
                    else:
                        raise SourceFault("yielded a change first; what it yields first has to be the whole set")
                    has_begun = True
        except TimeoutError:
            if not limit.expired():
                raise
        if not has_begun:
            raise SourceFault("ended without having yielded a set")
        await asyncio.sleep(_FIRST.total_seconds())

    async def _hear(self, written: SourceLog, complaint: str) -> None:
        """Note that something was recorded, except what the complaint names."""
        await written.heard(complaint and f"{self._source}: {complaint}")
        self._away.succeeded()
        self.status.objects = self.status.total = written.records
        self.status.last_contact = self._clock()
        self.status.version = written.version
        if complaint:
            self.status.skipped += 1
            self._troubles.tell("retrying", f"{self._source}: {complaint}")
            return
        if self._troubles.told:
            log.info("%s works again", self._source, extra={"resource": str(self.status.watched)})
        self._backoff.succeeded()
        self._troubles.over()
        self.status.detail, self.status.phase = "", "watching"
        self.status.changed()

    def _begin(self, written: SourceLog) -> None:
        if not self._troubles.told:
            self.status.phase = "listing" if self._clock() >= written.list_due() else "watching"
            self.status.changed()

    def _seconds_until(self, time: datetime) -> float | None:
        """The loop's time at that time; None if it is too far away to wait for."""
        seconds = (time - self._clock()).total_seconds()
        return asyncio.get_running_loop().time() + max(seconds, 0.0) if seconds < _FAR_SECONDS else None
