"""One part of a resource, from the API server into the log: lists and watches, one connection after another.

It reads the API, and hands messages to a lane of the log. It gives up at each failure: `watcher.py` says what is next.
"""

import logging
import random
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from levelog_base.errors import LevelogError, RecordError
from levelog_base.wire.objects import Version, parse_version
from levelog_base.wire.records import Origin
from levelog_ingest.recorder import Recorder
from levelog_ingest.status import ResourceStatus
from levelog_ingest.sync import PAGE_OBJECTS, Sync, count_objects, list_pages, version_of
from levelog_kube.client import KubeClient
from levelog_kube.discovery import Served
from levelog_kube.requestfailures import ApiError, NoAnswer
from levelog_log.appender import Lane

log = logging.getLogger(__name__)


INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"  # on the bookmark that ends a streaming list, KEP-3157
WATCH_SECONDS: Final = (300, 600)  # the server ends a watch after a time between them, as client-go asks for
_GONE: Final = 410
_CANNOT_STREAM: Final = (400, 422)  # sendInitialEvents is an error for servers that do not know it


class WatchEvent(Struct):
    """One line of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: Raw


class Bookmark(Struct):
    """What a bookmark says: everything up to the version was sent; perhaps also that the list is complete."""

    version: Version
    ends_list: bool


class _BookmarkMetadata(Struct, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


class _BookmarkObject(Struct):
    metadata: _BookmarkMetadata


_events: Final = msgspec.json.Decoder(WatchEvent)
_bookmarks: Final = msgspec.json.Decoder(_BookmarkObject)


def read_event(line: bytes) -> WatchEvent:
    """The event of a line. Raises RecordError, which quotes nothing of it, if it is none."""
    try:
        return _events.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"a line of a watch cannot be read: {error} ({len(line)} bytes)") from error


def read_bookmark(event: WatchEvent) -> Bookmark:
    """The bookmark in a BOOKMARK event. Raises NoAnswer if it is none."""
    try:
        metadata = _bookmarks.decode(event.object).metadata
        ends_list = (metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true"
        return Bookmark(version=parse_version(metadata.resource_version), ends_list=ends_list)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise NoAnswer(f"a bookmark cannot be read: {error}") from error


class HistoryExpired(LevelogError):
    """The server no longer has the requested history."""


class WentBack(LevelogError):
    """The API server is at a lower version than was seen: it has another history now, as after a restore of etcd."""

    def __init__(self, since: Version, version: Version) -> None:
        super().__init__(f"the API server is at version {version}, and {since} was seen: its history went back")
        self.since = since
        self.version = version


class Upstream(Struct, kw_only=True):
    """The API server, as it serves one resource."""

    client: KubeClient
    served: Served
    silence: timedelta
    seen: Version
    """The highest version that was seen of anything of the resource."""
    streams_lists: bool = True
    page_objects: int | None = PAGE_OBJECTS
    """Objects of a page, where lists are not streamed; None for all at once."""


class Feed:
    """Reads one part of a resource and hands it to a lane; call `read` again and again, it does what is next.

    A list that breaks off cannot continue: the whole sync begins again, with other feeds.
    """

    def __init__(
        self,
        upstream: Upstream,
        part: str,
        sync: Sync,
        lane: Lane,
        recorder: Recorder,
        status: ResourceStatus,
    ) -> None:
        self.part = part
        self.sync = sync
        self.is_listed = part in sync.versions
        self.is_half_listed = False
        """Whether its list was begun, so that a new one cannot be part of the same sync."""
        self._upstream = upstream
        self._client = upstream.client
        self._path = upstream.served.collection(part)
        self._lane = lane
        self._recorder = recorder
        self._status = status

    async def read(self) -> bool:
        """List if that is needed, then watch until the server ends the watch; tells whether anything came.

        Raises HistoryExpired, WentBack, ApiError and Unavailable; Unavailable that is no error of the kube room comes
        from the log, and then the lane is spent.
        """
        await self._check_history()  # asks for no history, so that a 410 of it says nothing of what is missing
        try:
            if self.is_listed:
                return await self._watch(self.sync.versions[self.part])
            if self._upstream.streams_lists:
                try:
                    return await self._list_and_watch()
                except ApiError as error:
                    if error.status not in _CANNOT_STREAM or self.is_half_listed:
                        raise
                    log.info("the server does not stream lists; listing in pages", extra=self._extra())
                    self._upstream.streams_lists = False
            await self._list_in_pages()
        except ApiError as error:
            if error.status == _GONE:
                raise HistoryExpired(error.message or error.reason or "the history asked for is gone") from error
            raise
        return True

    async def _check_history(self) -> None:
        """Raise WentBack if the server's history did: a watch would wait for ever, and a list would sweep nothing."""
        seen = max((self._upstream.seen, *self.sync.versions.values()))
        if seen and (version := await version_of(self._client, self._path)) < seen:
            raise WentBack(seen, version)

    async def note_reverted(self, error: WentBack) -> None:
        """Record that history went back; a list is next."""
        log.error("%s; listing again, and taking the list as it is", error, extra=self._extra())
        await self._lane.submit(self._recorder.reverted(error.since, error.version))

    async def note_gap(self, reason: str) -> None:
        """Say in the log that history is missing; a list is next."""
        since = self.sync.versions.get(self.part, Version(0))
        level = self._client.absence.level_of_loss()
        log.log(level, "history is missing, listing again: %s", reason, extra=self._extra())
        await self._lane.submit(self._recorder.gap(since, reason))

    async def _watch(self, version: Version) -> bool:
        if self.sync.listed_at is not None:
            self._status.phase, self._status.version = "watching", self.sync.lowest
        query = {"watch": "1", "resourceVersion": str(version), "allowWatchBookmarks": "true", **_time_limit()}
        has_heard = False
        async with self._client.stream(self._path, query=query, silence=self._upstream.silence) as lines:
            self._heard()
            if not self.sync.is_heard and self.sync.mark(self.part, version):  # or it is silent for another minute
                await self._lane.submit(self._recorder.bookmark(self.sync.lowest))
            async for some in lines:
                has_heard = True
                for line in some:
                    await self._take_line(line)
                self._heard()
        return has_heard

    async def _list_and_watch(self) -> bool:
        if self._status.on_change is not None:
            self.sync.expect(self.part, await count_objects(self._client, self._path))
        query = {
            "watch": "1",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": "true",
            **_time_limit(),
        }
        async with self._client.stream(self._path, query=query, silence=self._upstream.silence) as lines:
            await self._begin_list()
            async for some in lines:
                for line in some:
                    await self._take_line(line)
                self._heard()
        if not self.is_listed:  # what was deleted between this end and a second beginning would be in neither half
            raise NoAnswer(f"GET {self._path}: the list ended before it was complete")
        return True

    async def _list_in_pages(self) -> None:
        try:
            await self._take_pages()
        except ApiError as error:
            if error.status != _GONE or not self.is_half_listed or self._upstream.page_objects is None:
                raise
            # The list takes longer than etcd keeps the history of its pages, and would again. client-go does the same.
            self._upstream.page_objects = None
            raise NoAnswer(f"{error}; the next list is asked for in one piece") from error

    async def _take_pages(self) -> None:
        version = Version(0)
        listed = 0
        async for page in list_pages(self._client, self._path, self._upstream.page_objects):
            await self._begin_list()
            version = page.version
            if listed == 0:
                self.sync.expect(self.part, None if page.remaining is None else len(page.items) + page.remaining)
            for item in page.items:
                await self._record(bytes(item), origin="list", kind=self._upstream.served.kind)
            listed += len(page.items)
            self._status.objects += len(page.items)
            self._heard()
        await self._end_list(version)

    async def _begin_list(self) -> None:
        await self.sync.begin()
        self.is_half_listed = True
        self._heard()

    async def _end_list(self, version: Version) -> None:
        await self.sync.end(self.part, version)
        self.is_listed, self.is_half_listed = True, False
        self._heard()

    async def _take_line(self, line: bytes) -> None:
        """Take in a line. Raises HistoryExpired for one that cannot be read, so that a list shows its object."""
        try:
            event = read_event(line)
        except RecordError as error:
            await self._lane.submit((self._recorder.unreadable(b"", str(error)),))
            if self.is_listed:
                raise HistoryExpired(str(error)) from error
            return  # another list would not be told better
        await self._take(event)

    async def _take(self, event: WatchEvent) -> None:
        match event.type:
            case "ADDED" | "MODIFIED" | "DELETED":
                origin: Origin = "list" if self.sync.listed_at is None else "watch"
                is_deleted = event.type == "DELETED"
                version = await self._record(bytes(event.object), origin=origin, is_deleted=is_deleted)
                if not self.is_listed:
                    self._status.objects += event.type == "ADDED"
                elif version is not None:
                    self.sync.advance(self.part, version)
            case "BOOKMARK":
                bookmark = read_bookmark(event)
                if not self.is_listed and bookmark.ends_list:
                    await self._end_list(bookmark.version)
                elif self.is_listed and self.sync.mark(self.part, bookmark.version):
                    await self._lane.submit(self._recorder.bookmark(self.sync.lowest))
            case "ERROR":
                raise ApiError.from_answer("WATCH", self._path, 0, bytes(event.object))

    async def _record(self, body: bytes, *, origin: Origin, is_deleted: bool = False, kind: str = "") -> Version | None:
        version, message = self._recorder.object_message(body, origin=origin, is_deleted=is_deleted, kind=kind)
        # a list that breaks off has been seen, too
        self._upstream.seen = max(self._upstream.seen, version or Version(0))
        await self._lane.submit((message,))
        return version

    def _heard(self) -> None:
        self._status.detail = ""
        self._status.last_contact = datetime.now(UTC)
        self._status.changed()

    def _extra(self) -> dict[str, object]:
        return {"resource": str(self._status.watched)}


def _time_limit() -> dict[str, str]:
    return {"timeoutSeconds": str(random.randint(*WATCH_SECONDS))}  # noqa: S311  # it spreads load and hides nothing
