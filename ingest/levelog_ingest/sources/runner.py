"""Keeps one external source flowing into the log, whatever its function does."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn

from levelog.calls.faults import tell_fault
from levelog.errors import ConfigurationError, IdentityMismatch, LevelogError
from levelog.handlers.injection import about
from levelog.handlers.sources import SourceHandler
from levelog.secrets.redaction import Redactor
from levelog_ingest.backoff import LONGEST, Backoff
from levelog_ingest.sources.calling import Calls, SourceFault, as_set, is_whole
from levelog_ingest.sources.reading import read_log_state
from levelog_ingest.sources.recording import SourceLog
from levelog_ingest.watched import Progress, ResourceStatus, WatchedResource
from levelog_log.appender import Appender
from levelog_log.stream import LogStream

log = logging.getLogger(__name__)

_FIRST: Final = timedelta(seconds=1)
_LONGEST_OF_ALL: Final = timedelta(minutes=5)


class SourceRunner:
    """Runs one source for ever. Run by one process at a time: whoever takes over reads from the log where it stands.

    A set is versioned by when it was observed, so that a process that was paused cannot bring back an old one.
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
        self.status = ResourceStatus(
            watched=WatchedResource(resource=resource.group_resource, version=resource.version)
        )
        self._source = source
        self._name = f"{source.operator}/{source.name}"
        self._stream = stream
        self._appender = appender
        self._redactor = redactor
        self._on_change = on_change
        self._clock = clock
        self._calls = Calls(source)
        longest = min(max(source.every or LONGEST, LONGEST), _LONGEST_OF_ALL)
        self._backoff = Backoff(_FIRST, longest)
        self._away = Backoff()
        self._told = ""

    async def run(self) -> NoReturn:
        """Run until cancelled. Raises IdentityMismatch, ConfigurationError."""
        about(source=str(self.status.watched))
        while True:
            try:
                await self._follow()
            except (IdentityMismatch, ConfigurationError):
                raise
            except LevelogError as error:
                self._tell(str(error))
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
                if detail != self._told:
                    cause = fault.__cause__ or fault
                    tell_fault(
                        "source",
                        self._name,
                        self._source.function,
                        cause,
                        subject=str(self.status.watched),
                        clean=self._redactor.redact_text,
                    )
                self._note(detail)
                await written.lost(detail)
                await asyncio.sleep(self._backoff.failed().total_seconds())

    async def _poll(self, written: SourceLog) -> None:
        assert self._source.every is not None  # noqa: S101 - else it is watched
        self._begin(written)
        await self._take_whole(written, await self._calls.poll())
        await asyncio.sleep(self._source.every.total_seconds())

    async def _watch(self, written: SourceLog) -> None:
        """One life of a generator; it begins with a whole set, and ends at the latest when a list is due."""
        self._begin(written)
        has_begun = False
        limit = asyncio.timeout(None)
        try:
            async with limit, aclosing(self._calls.watch()) as said:
                async for item in said:
                    if is_whole(item):
                        await self._take_whole(written, item)
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

    async def _take_whole(self, written: SourceLog, records: object) -> None:
        await self._hear(written, await written.whole(as_set(records)))

    async def _hear(self, written: SourceLog, complaint: str) -> None:
        """Take note that something was recorded, but for what the complaint says."""
        await written.heard(complaint and f"{self._source}: {complaint}")
        self._away.succeeded()
        self.status.objects = self.status.total = written.records
        self.status.last_contact = self._clock()
        self.status.version = written.version
        if complaint:
            self.status.skipped += 1
            self._tell(f"{self._source}: {complaint}")
            return
        if self._told:
            log.info("%s is well again", self._source, extra={"resource": str(self.status.watched)})
        self._backoff.succeeded()
        self._told, self.status.detail, self.status.phase = "", "", "watching"
        self._changed()

    def _begin(self, written: SourceLog) -> None:
        if not self._told:
            self.status.phase = "listing" if self._clock() >= written.list_due() else "watching"
            self._changed()

    def _seconds_until(self, time: datetime) -> float | None:
        """The loop's time at that time; None if it is too far away to wait for."""
        seconds = (time - self._clock()).total_seconds()
        return asyncio.get_running_loop().time() + max(seconds, 0.0) if seconds < _FAR_SECONDS else None

    def _tell(self, detail: str) -> None:
        """Note what is wrong, and log it once until it changes."""
        if detail != self._told:
            log.warning("%s", detail, extra={"resource": str(self.status.watched)})
        self._note(detail)

    def _note(self, detail: str) -> None:
        self.status.phase, self.status.detail = "retrying", detail
        self._told = detail
        self._changed()

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change(self.status)


_FAR_SECONDS: Final = timedelta(days=365).total_seconds()
