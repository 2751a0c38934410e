"""Keeps one resource flowing into the log, whatever happens to the API server, the network or the log."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, NoReturn

from levelog.errors import ConfigurationError, IdentityMismatch, LevelogError
from levelog.redaction import Redactor
from levelog_ingest.backoff import Backoff
from levelog_ingest.feed import Expired, Feed
from levelog_ingest.recorder import Recorder
from levelog_ingest.resume import ListFirst, ResumeAt, find_resume_point
from levelog_ingest.watched import Phase, Progress, ResourceStatus, WatchedResource
from levelog_kube.client import SILENCE, KubeClient
from levelog_kube.discovery import Served, resolve
from levelog_kube.errors import ApiError, NoAnswer, Unreachable
from levelog_log.appender import Appender
from levelog_log.messages import Writer
from levelog_log.stream import LogStream

log = logging.getLogger(__name__)

ABSENT_LONGEST: Final = timedelta(seconds=10)
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_SHORT_WATCH_SECONDS: Final = 1.0  # a server that ends watches at once is not asked again at once


class Watcher:
    """Watches one resource for ever; gives up only on what no retry mends (IdentityMismatch, ConfigurationError)."""

    def __init__(
        self,
        client: KubeClient,
        stream: LogStream,
        appender: Appender,
        redactor: Redactor,
        watched: WatchedResource,
        *,
        check_cluster: Callable[[], Awaitable[None]],
        on_change: Progress | None = None,
        silence: timedelta = SILENCE,
    ) -> None:
        self.status = ResourceStatus(watched=watched)
        self._client = client
        self._stream = stream
        self._appender = appender
        self._recorder = Recorder(
            appender.publisher, Writer(stream.cluster, stream.partitions, "ingest"), redactor, self.status
        )
        self._watched = watched
        self._check_cluster = check_cluster
        self._on_change = on_change
        self._silence = silence
        self._backoff = Backoff()
        self._told = ""
        self._was_away = False

    async def run(self) -> NoReturn:
        """Watch until cancelled. Raises IdentityMismatch, ConfigurationError."""
        while True:
            try:
                await self._follow(await self._wait_until_served())
                await asyncio.sleep(self._backoff.failed().total_seconds())
            except (IdentityMismatch, ConfigurationError):
                raise
            except LevelogError as error:
                await self._pause(error)
                await self._stream.connection.wait_connected()

    async def _wait_until_served(self) -> Served:
        waiting = Backoff(longest=ABSENT_LONGEST)
        resource, version = self._watched.resource, self._watched.version
        while True:
            served = await resolve(self._client, resource.group, version, resource.resource)
            if served is not None:
                if not served.namespaced and self._watched.namespace:
                    raise ConfigurationError(f"{resource} has no namespaces, so {self._watched} cannot be watched")
                return served
            self._tell("absent", f"the cluster does not serve {resource} in version {version}; waiting for it")
            await asyncio.sleep(waiting.failed().total_seconds())

    async def _follow(self, served: Served) -> None:
        """Feed one lane of the log, as long as the log takes it and the resource is served."""
        resume = await find_resume_point(self._stream, self._watched)
        max_age = self._stream.max_age
        lane = self._appender.lane()
        feed = Feed(
            self._client,
            served,
            lane,
            self._recorder,
            self.status,
            self._on_change,
            baseline_every=max_age / 2 if max_age else None,
            silence=self._silence,
        )
        match resume:
            case ResumeAt():
                feed.version, feed.listed_at = resume.version, resume.listed_at
                log.info("watching on", extra={"resource": str(self._watched), "version": resume.version})
            case ListFirst():
                log.info("listing: %s", resume.reason, extra={"resource": str(self._watched)})
        # The lane may fail while the API server has nothing to say: then too, what was lost has to be found out.
        reading = asyncio.ensure_future(self._read_on(feed))
        failing = asyncio.ensure_future(lane.until_failed())
        try:
            await asyncio.wait((reading, failing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, failing):
                task.cancel()
            ended = await asyncio.gather(reading, failing, return_exceptions=True)
        for outcome in reversed(ended):
            if isinstance(outcome, Exception):
                raise outcome

    async def _read_on(self, feed: Feed) -> None:
        """Read for ever, until the resource is no longer served. Raises what the log refuses."""
        expired = 0
        while True:
            began = time.monotonic()
            try:
                if self._was_away:
                    await self._check_cluster()  # the same address may lead to another cluster now
                    self._was_away = False
                has_heard = await feed.read()
            except Expired as error:
                await feed.note_gap(str(error))
                expired += 1
                if expired > 1:
                    await self._pause(error)
                continue
            except (Unreachable, NoAnswer, ApiError) as error:
                if isinstance(error, ApiError) and error.status == _NOT_FOUND:
                    log.warning("no longer served", extra={"resource": str(self._watched)})
                    return
                if time.monotonic() - began > _SHORT_WATCH_SECONDS:
                    self._backoff.succeeded()
                await self._pause(error)
                continue
            self._told = ""
            expired = 0
            self._backoff.succeeded()
            if not has_heard and time.monotonic() - began < _SHORT_WATCH_SECONDS:
                await asyncio.sleep(self._backoff.failed().total_seconds())

    async def _pause(self, error: LevelogError) -> None:
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        self._was_away = self._was_away or isinstance(error, (Unreachable, NoAnswer))
        if isinstance(error, ApiError) and error.status == _FORBIDDEN:
            self._tell("forbidden", f"may not list and watch {self._watched}: {error.message}")
        else:
            self._tell("retrying", str(error))
        await asyncio.sleep(self._backoff.failed(retry_after).total_seconds())

    def _tell(self, phase: Phase, detail: str) -> None:
        """Note what is wrong, and log it once until it changes."""
        self.status.phase, self.status.detail = phase, detail
        if detail != self._told:
            self._told = detail
            level = logging.ERROR if phase == "forbidden" else logging.WARNING
            log.log(level, "%s", detail, extra={"resource": str(self._watched)})
        if self._on_change is not None:
            self._on_change(self.status)
