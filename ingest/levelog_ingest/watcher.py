"""Watches one resource for ever, through failures of the API server, the network and NATS.

It decides whether to list or to watch on, and how long to wait. Itself, it asks the API only whether it serves the
resource and is the same cluster, and the log whether it still holds the last list. `resume.py` finds in the log where
to go on; feeds (`feed.py`) read lists and watches, and write to the lane of the log that is opened here.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, NoReturn, TypeAlias, TypeVar

from msgspec.structs import replace

from levelog.absence import level_of
from levelog_base.errors import ConfigurationError, IdentityMismatch, LevelogError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Version
from levelog_ingest.feed import Feed, HistoryExpired, Upstream, WentBack
from levelog_ingest.namespaces import has_patterns
from levelog_ingest.recorder import Recorder
from levelog_ingest.resume import Decision, ListFirst, ResumeAt, find_resume_point, holds_list
from levelog_ingest.status import Backoff, Progress, ResourceStatus, Troubles, WatchedResource
from levelog_ingest.sync import Sync
from levelog_kube.client import SILENCE, KubeClient
from levelog_kube.discovery import Served, absence_of, resolve
from levelog_kube.requestfailures import ApiError, NoAnswer, Unreachable
from levelog_log.appender import Appender, Lane
from levelog_log.publisher import LogFull
from levelog_log.stream import LogStream
from levelog_log.transport.wire import Message

log = logging.getLogger(__name__)

Ended: TypeAlias = Literal["list", "reverted", "gone"]
"""Why reading ended: all parts have to be listed again, in another history perhaps, or the resource is not served."""

_NOT_FOUND: Final = 404
_FORBIDDEN: Final = 403
_SHORT_WATCH_SECONDS: Final = 1.0  # a server that ends watches at once is not asked again at once
T = TypeVar("T")
ABSENT_LONGEST: Final = timedelta(seconds=10)
AWAY_LONGEST: Final = timedelta(seconds=3)
"""If no server listens, the longest time until its return is noticed."""
REOPENING: Final = timedelta(seconds=10)
"""A silent watch is opened again; one that is still silent after this time is in trouble."""
_FULL_LONGEST: Final = timedelta(seconds=10)  # there may be room before anybody says so
LOOK_EVERY: Final = timedelta(minutes=1)
"""How often to look whether the log still has the last list."""
LIST_APART: Final = timedelta(minutes=10)
"""Between two lists of a resource that the log is too small for."""


class _Waits(Troubles):
    """The problem with a watch, which is also waited out."""

    def __init__(self, status: ResourceStatus) -> None:
        super().__init__(status)
        self.backoff = Backoff()
        self.was_away = False
        """The API server could not be reached since its identity was compared."""
        self.has_expired = False
        """The server lacked the history that was asked for last."""

    async def pause(self, error: LevelogError) -> None:
        """Tell of an error and wait before the next attempt, at least as long as the server asks for."""
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        self.was_away = self.was_away or isinstance(error, (Unreachable, NoAnswer))
        if isinstance(error, ApiError) and error.status == _FORBIDDEN:
            detail = f"may not list and watch {self._status.watched}: {error.message}"
            self.tell("forbidden", detail, logging.DEBUG if error.is_told else logging.ERROR)
        else:
            self.tell("retrying", str(error), level_of(error))
        wait = self.backoff.failed(retry_after)
        if error.is_told or isinstance(error, Unreachable):  # it is away, or begins: that costs it next to nothing
            wait = min(wait, AWAY_LONGEST)
        await asyncio.sleep(wait.total_seconds())

    async def wait_for_room(self, error: LevelogError) -> None:
        """Wait before a full log is tried again; the log room has logged that once for all resources."""
        self._status.phase, self._status.detail = "retrying", str(error)
        self._status.changed()
        await asyncio.sleep(min(self.backoff.failed(), _FULL_LONGEST).total_seconds())

    def over(self) -> None:
        """All is well: the next wait is the shortest again."""
        super().over()
        self.backoff.succeeded()


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
        application: str = "",
    ) -> None:
        self.status = ResourceStatus(watched=watched, on_change=on_change, silence=silence + REOPENING)
        self._client = client
        self._stream = stream
        self._appender = appender
        self._recorder = Recorder(stream.writer("ingest"), redactor, self.status, application)
        self._rescoped, self._next_scope = asyncio.Event(), watched.namespaces
        self._check_cluster = check_cluster
        self._silence = silence
        self._troubles = _Waits(self.status)
        self.has_gap = asyncio.Event()
        """Set once something else noted a gap in the log: all is listed again."""
        self._list_again_from = 0.0
        """When a list that the log has lost may be made again, by the event loop's clock."""

    @property
    def _watched(self) -> WatchedResource:
        return self.status.watched

    def rescope(self, namespaces: tuple[str, ...]) -> None:
        """Watch these namespaces instead, which begins with a list of them; what is read now ends first."""
        self._next_scope = namespaces
        self._rescoped.set()

    def gap(self, reason: str) -> list[Message]:
        """The messages that note a gap of what the log holds of the resource."""
        return self._recorder.gap(self.status.version or Version(0), reason)

    async def run(self) -> NoReturn:
        """Watch until cancelled. Raises IdentityMismatch, ConfigurationError."""
        if has_patterns(self._watched.namespaces):
            await self._rescoped.wait()
        while True:
            try:
                await self._follow(await self._wait_until_served())
                await asyncio.sleep(self._troubles.backoff.failed().total_seconds())
            except (IdentityMismatch, ConfigurationError):
                raise
            except LogFull as error:
                await self._troubles.wait_for_room(error)
            except LevelogError as error:
                await self._troubles.pause(error)
                await self._stream.connection.wait_connected()

    async def _wait_until_served(self) -> Served:
        waiting = Backoff(longest=ABSENT_LONGEST)
        resource, version = self._watched.resource, self._watched.version
        while True:
            served = await resolve(self._client, resource.group, version, resource.resource)
            if served is not None:
                if self._watched.scope not in (None, served.scope):
                    raise ConfigurationError(
                        f"{resource} has {'' if served.namespaced else 'no '}namespaces, its class says otherwise: "
                        f'class {self._watched.kind}(…, scope="{served.scope}")'
                    )
                if not served.namespaced and self._watched.namespaces:
                    raise ConfigurationError(f"{resource} has no namespaces, so {self._watched} cannot be watched")
                return served
            absent = await absence_of(self._client, resource.group, version, resource.resource, self._watched.kind)
            mend = "" if absent.plural or absent.version else "; install its CustomResourceDefinition"
            self._troubles.tell("absent", f"waits for {resource}: {absent.text}{mend}")
            await asyncio.sleep(waiting.failed().total_seconds())

    async def _follow(self, served: Served) -> None:
        """Feed one lane of the log, as long as the log takes it and the resource is served."""
        self._rescoped.clear()
        self.status.watched = replace(self._watched, namespaces=self._next_scope)
        self.has_gap.clear()  # what is in the log is found there
        resume = await find_resume_point(self._stream, self._watched)
        lane = Lane(self._appender)
        # The lane may fail while the API server has nothing to say: then too, what was lost has to be found out.
        await _first_of([self.read_on(served, lane, resume), lane.until_failed(), self._rescoped.wait()])

    async def read_on(self, served: Served, lane: Lane, resume: Decision) -> None:
        """Read all parts for ever, until the resource is no longer served. Raises what the log refuses."""
        match resume:
            case ResumeAt():
                sync = Sync.resumed(lane, self._recorder, self.status, resume)
                level = logging.DEBUG if self._stream.connection.absence.is_felt else logging.INFO
                log.log(level, "watching on", extra={"resource": str(self._watched), "version": sync.lowest})
            case ListFirst():
                sync = Sync(lane, self._recorder, self.status)
                log.info("listing: %s", resume.reason, extra={"resource": str(self._watched)})
        upstream = Upstream(client=self._client, served=served, silence=self._silence, seen=resume.seen)
        parts = self._watched.parts
        troubles = {part: self._troubles if len(parts) == 1 else _Waits(self.status) for part in parts}
        ended: Ended = "list"
        while ended != "gone":
            feeds = [Feed(upstream, part, sync, lane, self._recorder, self.status) for part in parts]
            reading = [self._read(feed, troubles[feed.part]) for feed in feeds]
            ended = await _first_of([*reading, self._until_list_is_lost(sync), self._until_gap()])
            upstream.seen = Version(0) if ended == "reverted" else max((upstream.seen, *sync.versions.values()))
            is_again = sync.is_again or sync.listed_at is not None
            sync = Sync(lane, self._recorder, self.status, is_again=is_again)

    async def _read(self, feed: Feed, troubles: _Waits) -> Ended:
        """Read one part until all have to be listed, or the resource is not served. Raises what the log refuses.

        An error of the log ends it, since the state of the log is unknown then.
        """
        while True:
            if feed.is_listed and feed.sync.is_older_than(self._stream.max_age / 2):
                log.info("listing again, so that the log holds a complete list", extra={"part": feed.part})
                return "list"
            began = time.monotonic()
            try:
                if troubles.was_away:
                    await self._check_cluster()  # the same address may lead to another cluster now
                    troubles.was_away = False
                has_heard = await feed.read()
            except WentBack as error:
                await feed.note_reverted(error)
                return "reverted"
            except HistoryExpired as error:
                await feed.note_gap(str(error))
                if troubles.has_expired:
                    await troubles.pause(error)
                troubles.has_expired = True
                return "list"
            except (Unreachable, NoAnswer, ApiError) as error:
                if isinstance(error, ApiError) and error.status == _NOT_FOUND:
                    return "gone"  # the wait for it says so, once for all parts
                if time.monotonic() - began > _SHORT_WATCH_SECONDS:
                    troubles.backoff.succeeded()
                await troubles.pause(error)
                if feed.is_half_listed:
                    return "list"
                continue
            troubles.has_expired = False
            if has_heard or time.monotonic() - began >= _SHORT_WATCH_SECONDS:
                troubles.over()
            else:
                await asyncio.sleep(troubles.backoff.failed().total_seconds())

    async def _until_gap(self) -> Ended:
        await self.has_gap.wait()
        self.has_gap.clear()
        log.warning("the log lost history, listing again", extra={"resource": str(self._watched)})
        return "list"

    async def _until_list_is_lost(self, sync: Sync) -> Ended:
        """Wait until the log has dropped the last list for other reasons than its age, so that it has to have another.

        One that is too small for a list is not filled with lists alone.
        """
        clock, resource, begins_at = asyncio.get_running_loop().time, self._watched.resource, -1
        while True:
            await asyncio.sleep(LOOK_EVERY.total_seconds())
            if sync.listed_at is None or clock() < self._list_again_from:
                continue
            state = await self._stream.state()
            if state.first_seq == begins_at:
                continue
            begins_at = state.first_seq
            if not await holds_list(self._stream, resource):
                self._list_again_from = clock() + LIST_APART.total_seconds()
                said = "the log does not hold the last list of %s any more; listing again. Let it keep more (max_bytes)"
                log.warning(said, resource, extra={"resource": str(self._watched)})
                return "list"


async def _first_of(works: Sequence[Coroutine[Any, Any, T]]) -> T:
    """Run all until the first ends; an error of any that ended goes before a result."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    failed = [task for task in reversed(ended) if not task.cancelled() and task.exception() is not None]
    return (failed or ended)[0].result()
