"""One list of a resource over all its parts: when it begins, how far each part is, and when it is complete.

It writes the beginning and the end of the list to the log; `feed.py` reads the objects in between. And requests for
collections: in pages, counted, or for the version alone.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Self

import msgspec
from msgspec import Raw, Struct

from levelog_base.counting import counted
from levelog_base.wire.objects import Version, parse_version
from levelog_ingest.recorder import Recorder
from levelog_ingest.resume import ResumeAt
from levelog_ingest.status import DIFFERENCE, ResourceStatus
from levelog_kube.client import REQUEST_TIMEOUT, KubeClient
from levelog_kube.requestfailures import NoAnswer
from levelog_log.appender import Lane

log = logging.getLogger(__name__)


PAGE_OBJECTS: Final = 500  # as kubectl and client-go ask for
WHOLE_TIMEOUT: Final = timedelta(seconds=60)
"""Time limit of a list in one piece: as long as kube-apiserver works at a request."""


class _ListMetadata(Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None


class _List(Struct):
    metadata: _ListMetadata
    items: list[Raw] | None = None


class ListPage(Struct):
    """Some objects of a list, as it is at `version`."""

    items: list[Raw]
    version: Version
    remaining: int | None
    """How many objects follow, where the server says."""


async def list_pages(client: KubeClient, path: str, objects: int | None = PAGE_OBJECTS) -> AsyncIterator[ListPage]:
    """All objects of a collection, all as of one version, in pages of so many; None for one page.

    Raises ApiError, with status 410 if the list took longer than the server keeps history; Unavailable.
    """
    following = ""
    while True:
        query = {} if objects is None else {"limit": str(objects)}
        if following:
            query["continue"] = following
        listed = await _list(client, path, query, REQUEST_TIMEOUT if objects else WHOLE_TIMEOUT)
        yield ListPage(
            items=listed.items or [],
            version=_version(path, listed),
            remaining=listed.metadata.remaining_item_count,
        )
        following = listed.metadata.continue_
        if not following:
            return


async def count_objects(client: KubeClient, path: str) -> int | None:
    """How many objects a collection has, without reading them; None where the server does not say."""
    listed = await _list(client, path, {"limit": "1"})
    remaining = listed.metadata.remaining_item_count if listed.metadata.continue_ else 0
    return None if remaining is None else remaining + len(listed.items or ())


async def version_of(client: KubeClient, path: str) -> Version:
    """The version that a collection has now. Raises as `KubeClient.request`."""
    return _version(path, await _list(client, path, {"limit": "1"}))


async def _list(
    client: KubeClient,
    path: str,
    query: Mapping[str, str],
    timeout: timedelta = REQUEST_TIMEOUT,  # noqa: ASYNC109
) -> _List:
    return (await client.request("GET", path, query=query, timeout=timeout)).decode(_List)


def _version(path: str, listed: _List) -> Version:
    try:
        return parse_version(listed.metadata.resource_version)
    except ValueError as error:
        raise NoAnswer(
            f"GET {path}: the list's resourceVersion {listed.metadata.resource_version!r} is no number"
        ) from error


class Sync:
    """Begins with the first part that is read and ends with the last.

    Until then nothing is claimed to be complete: what watches of the other parts tell is recorded as listed.
    """

    def __init__(self, lane: Lane, recorder: Recorder, status: ResourceStatus, *, is_again: bool = False) -> None:
        """`is_again`: there was a list before, and the log says why there is another."""
        self.is_again = is_again
        self.listed_at: datetime | None = None
        """When the last part was complete; None while one is not."""
        self._lane = lane
        self._recorder = recorder
        self._status = status
        self._id = ""
        self._beginning = asyncio.Lock()  # no record of a part may overtake the beginning
        self._expected: dict[str, int | None] = {}
        self._versions: dict[str, Version] = {}
        self._heard: set[str] = set()
        self.is_heard = True
        """Whether all parts were heard of since it was begun, or taken up again."""

    @classmethod
    def resumed(cls, lane: Lane, recorder: Recorder, status: ResourceStatus, at: ResumeAt) -> Self:
        """A list that was finished before, by this process or another."""
        sync = cls(lane, recorder, status)
        sync.listed_at = at.listed_at
        sync._versions = dict(at.versions)
        sync.is_heard = False
        return sync

    @property
    def versions(self) -> Mapping[str, Version]:
        """Up to where each part is in the log, or on its way there; parts that are not listed are missing."""
        return self._versions

    @property
    def lowest(self) -> Version:
        """Up to where all parts are."""
        return min(self._versions.values())

    def is_older_than(self, age: timedelta) -> bool:
        """Tell whether it was complete so long ago, or in a future from which the clock was set back; zero: never."""
        if not age or self.listed_at is None:
            return False
        return not -DIFFERENCE < datetime.now(UTC) - self.listed_at < age

    async def begin(self) -> None:
        """A part begins to be listed."""
        async with self._beginning:
            if self._id:
                return
            sync_id = secrets.token_hex(8)
            self._status.phase = "listing"
            self._status.objects = 0
            await self._lane.submit(self._recorder.list_started(sync_id))
            self._id = sync_id

    def expect(self, part: str, objects: int | None) -> None:
        """A part has so many objects; None where the server does not say."""
        self._expected[part] = objects
        known = [each for each in self._expected.values() if each is not None]
        self._status.total = sum(known) if len(known) == len(self._expected) else None

    async def end(self, part: str, version: Version) -> None:
        """A part is listed to its end."""
        self._versions[part] = version
        if len(self._versions) < len(self._status.watched.parts):
            return
        await self._lane.submit(self._recorder.list_finished(self._id, self.lowest))
        self.listed_at = datetime.now(UTC)
        self._status.phase, self._status.version = "watching", self.lowest
        self._status.total = self._status.objects
        extra = {"resource": str(self._status.watched), "version": self.lowest}
        level = logging.DEBUG if self.is_again else logging.INFO
        log.log(level, "listed %s", counted(self._status.objects, "object"), extra=extra)

    def advance(self, part: str, version: Version) -> bool:
        """A part has progressed; returns whether all parts have progressed by that."""
        if part not in self._versions:
            return False
        before = self.lowest
        self._versions[part] = max(version, self._versions[part])
        if self.listed_at is not None:
            self._status.version = self.lowest
        return self.listed_at is not None and self.lowest > before

    def mark(self, part: str, version: Version) -> bool:
        """A part has been heard of, and is so far; tells whether that says something of all parts.

        It does if all have come further, or all were heard of since it did. Nothing changes in a quiet cluster, and
        its watches are as alive as others.
        """
        is_further = self.advance(part, version)
        self._heard.add(part)
        if self.listed_at is None or not (is_further or self._heard.issuperset(self._versions)):
            return False
        self._heard.clear()
        self.is_heard = True
        return True
