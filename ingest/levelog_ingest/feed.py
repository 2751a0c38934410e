"""One resource read from the API server into the log: lists and watches, one connection after another."""

import logging
import random
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from levelog.errors import LevelogError, RecordError
from levelog.objects import Version
from levelog_ingest.events import WatchEvent, read_bookmark, read_event
from levelog_ingest.listing import count_objects, list_pages
from levelog_ingest.recorder import Recorder
from levelog_ingest.watched import Progress, ResourceStatus
from levelog_kube.client import KubeClient
from levelog_kube.discovery import Served
from levelog_kube.errors import ApiError
from levelog_log.appender import Lane
from levelog_log.wire import Message

log = logging.getLogger(__name__)

WATCH_SECONDS: Final = (300, 600)  # the server ends a watch after a time between them, as client-go asks for
GROUP_MESSAGES: Final = 100  # what is handed over at once: a fifth of a batch
GROUP_BYTES: Final = 512 * 1024
_GONE: Final = 410
_CANNOT_STREAM: Final = (400, 422)  # sendInitialEvents is an error for servers that do not know it


class Expired(LevelogError):
    """The server no longer has the history that was asked for."""


class Feed:
    """Reads one resource and hands it to a lane; `read` is called again and again, and does what is next.

    `version` is how far the lane was fed, None while a list is needed; `listed_at` when the last list ended.
    """

    def __init__(
        self,
        client: KubeClient,
        served: Served,
        lane: Lane,
        recorder: Recorder,
        status: ResourceStatus,
        on_change: Progress | None,
        *,
        baseline_every: timedelta | None,
        silence: timedelta,
    ) -> None:
        self.version: Version | None = None
        self.listed_at: datetime | None = None
        self._client = client
        self._served = served
        self._path = served.collection(status.watched.namespace)
        self._lane = lane
        self._recorder = recorder
        self._status = status
        self._on_change = on_change
        self._baseline_every = baseline_every
        self._silence = silence
        self._streams_lists = True
        self._waiting: list[Message] = []
        self._waiting_bytes = 0

    async def read(self) -> bool:
        """List if that is needed, then watch until the server ends the watch; tells whether anything came.

        Raises Expired, ApiError and Unavailable; Unavailable that is no error of the kube room comes from the log, and
        then the lane is spent.
        """
        await self._hand_over()  # of a connection that broke after its events were counted in `version`
        if self.version is not None and self._is_baseline_due():
            log.info("listing again, so that the log holds a baseline", extra=self._extra())
            self.version = None
        try:
            if self.version is not None:
                return await self._watch(self.version)
            if self._streams_lists:
                try:
                    return await self._list_and_watch()
                except ApiError as error:
                    if error.status not in _CANNOT_STREAM or self._status.phase == "listing":
                        raise
                    log.info("the server does not stream lists; listing in pages", extra=self._extra())
                    self._streams_lists = False
            await self._list_in_pages()
        except ApiError as error:
            if error.status == _GONE:
                raise Expired(error.message or error.reason or "the history asked for is gone") from error
            raise
        return True

    async def note_gap(self, reason: str) -> None:
        """Say in the log that history is missing; a list is next."""
        since = self.version or Version(0)
        log.warning("history is missing, listing again: %s", reason, extra=self._extra())
        await self._lane.submit(self._recorder.gap(since, reason))
        self.version = None

    async def _watch(self, version: Version) -> bool:
        self._status.phase, self._status.version = "watching", version
        query = {"watch": "1", "resourceVersion": str(version), "allowWatchBookmarks": "true", **_time_limit()}
        has_heard = False
        async with self._client.stream(self._path, query=query, silence=self._silence) as lines:
            self._heard()
            async for some in lines:
                has_heard = True
                for line in some:
                    await self._take_line(line, sync_id=None)
                await self._hand_over()
                self._heard()
        return has_heard

    async def _list_and_watch(self) -> bool:
        if self._on_change is not None:
            self._status.total = await count_objects(self._client, self._path)
        query = {
            "watch": "1",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": "true",
            **_time_limit(),
        }
        async with self._client.stream(self._path, query=query, silence=self._silence) as lines:
            sync_id: str | None = await self._begin_list()
            async for some in lines:
                for line in some:
                    sync_id = await self._take_line(line, sync_id=sync_id)
                await self._hand_over()
                self._heard()
        return True

    async def _list_in_pages(self) -> None:
        sync_id: str | None = None
        version = Version(0)
        async for page in list_pages(self._client, self._path):
            sync_id = sync_id or await self._begin_list()
            version = page.version
            for item in page.items:
                await self._record(bytes(item), origin="list", kind=self._served.kind)
                self._status.objects += 1
            self._status.total = None if page.remaining is None else self._status.objects + page.remaining
            await self._hand_over()
            self._heard()
        await self._end_list(sync_id or await self._begin_list(), version)

    async def _begin_list(self) -> str:
        sync_id = secrets.token_hex(8)
        self._status.phase = "listing"
        self._status.objects = 0
        self._heard()
        await self._lane.submit(self._recorder.list_started(sync_id))
        return sync_id

    async def _end_list(self, sync_id: str, version: Version) -> None:
        await self._hand_over()
        await self._lane.submit(self._recorder.list_finished(sync_id, version))
        self.version, self.listed_at = version, datetime.now(UTC)
        self._status.phase, self._status.version = "watching", version
        self._status.total = self._status.objects
        self._heard()
        log.info("listed %d objects", self._status.objects, extra=self._extra(version=version))

    async def _take_line(self, line: bytes, *, sync_id: str | None) -> str | None:
        """Take in a line, as `_take` does. What one that cannot be read was to tell, a list will: raises Expired."""
        try:
            event = read_event(line)
        except RecordError as error:
            self._wait((self._recorder.line_unreadable(error),))
            await self._hand_over()
            if sync_id is None:
                raise Expired(str(error)) from error
            return sync_id  # another list would not be told better
        return await self._take(event, sync_id=sync_id)

    async def _take(self, event: WatchEvent, *, sync_id: str | None) -> str | None:
        """Take in an event; `sync_id` is that of the list under way. Returns the one that is under way after it."""
        match event.type:
            case "ADDED" if sync_id is not None:
                await self._record(bytes(event.object), origin="list")
                self._status.objects += 1
            case "ADDED" | "MODIFIED" | "DELETED":
                version = await self._record(bytes(event.object), origin="watch", is_deleted=event.type == "DELETED")
                if version is not None and sync_id is None:
                    self.version = self._status.version = version
            case "BOOKMARK":
                bookmark = read_bookmark(event)
                if sync_id is not None and bookmark.ends_list:
                    await self._end_list(sync_id, bookmark.version)
                    return None
                if sync_id is None and (self.version is None or bookmark.version > self.version):
                    self._wait(self._recorder.bookmark(bookmark.version))
                    self.version = self._status.version = bookmark.version
            case "ERROR":
                await self._hand_over()
                raise ApiError.from_answer("WATCH", self._path, 0, bytes(event.object))
        return sync_id

    async def _record(
        self, body: bytes, *, origin: Literal["list", "watch"], is_deleted: bool = False, kind: str = ""
    ) -> Version | None:
        version, message = self._recorder.object_message(body, origin=origin, is_deleted=is_deleted, kind=kind)
        self._wait((message,))
        if len(self._waiting) >= GROUP_MESSAGES or self._waiting_bytes >= GROUP_BYTES:
            await self._hand_over()
        return version

    def _wait(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._waiting.append(message)
            self._waiting_bytes += len(message.payload)

    async def _hand_over(self) -> None:
        if self._waiting:
            waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
            await self._lane.submit(waiting)

    def _is_baseline_due(self) -> bool:
        if self._baseline_every is None or self.listed_at is None:
            return False
        return datetime.now(UTC) - self.listed_at >= self._baseline_every

    def _heard(self) -> None:
        self._status.detail = ""
        self._status.last_contact = datetime.now(UTC)
        if self._on_change is not None:
            self._on_change(self._status)

    def _extra(self, **more: object) -> dict[str, object]:
        return {"resource": str(self._status.watched), **more}


def _time_limit() -> dict[str, str]:
    return {"timeoutSeconds": str(random.randint(*WATCH_SECONDS))}  # noqa: S311  # it spreads load and hides nothing
