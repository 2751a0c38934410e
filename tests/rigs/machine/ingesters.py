"""Ingesters that share a log and know nothing of each other, each stepped from one answer of the API to the next.

What lists, watches and resumes is the real one; the API, the log and the waits are made here. Lists are streamed: a
snapshot, then what happens while it is told, then its end. One that is not stepped is a process that was paused. Not
imitated: a process that hands on what it read before a restore of the API, after others have noticed the restore.
"""

# pyright: reportPrivateUsage=false
import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec

from levelog.absence import Absence
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.envelope import decode
from levelog_base.wire.objects import GroupResource
from levelog_base.wire.records import (
    BookmarkNoted,
    GapNoted,
    HistoryReverted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    SyncFinished,
    SyncStarted,
)
from levelog_ingest.feed import INITIAL_EVENTS_END
from levelog_ingest.resume import Decision, decide
from levelog_ingest.status import Backoff, WatchedResource
from levelog_ingest.watcher import Watcher
from levelog_kube.client import Answer, KubeClient
from levelog_kube.discovery import Served
from levelog_kube.requestfailures import ApiError, NoAnswer
from levelog_log.appender import Appender, Lane
from levelog_log.messages import MessageWriter
from levelog_log.stream import LogStream
from levelog_log.transport.wire import Message, parse_header_lines
from rigs.machine.cluster import GROUP, WEBS, Cluster, Happening, recorded
from rigs.machine.log import CLUSTER, PARTITIONS, Log

WATCHED: Final = WatchedResource(resource=GroupResource(group=GROUP, resource=WEBS), version="v1")
SERVED: Final = Served(root=f"/apis/{GROUP}/v1", plural=WEBS, kind="Web", namespaced=True)


class Server(Cluster):
    """A cluster that forgets what happened before `compacted_to`, and may be restored to what it was."""

    def __init__(self) -> None:
        super().__init__()
        self.compacted_to = 0

    def restore(self, revision: int) -> None:
        """Go back to a revision; connections break."""
        self.happenings = [each for each in self.happenings if each.revision <= revision]
        self.objects = {}
        for each in self.happenings:
            self.objects.pop(each.key, None)
            if not each.is_deletion:
                self.objects[each.key] = msgspec.json.decode(each.body)
        self.revision = revision
        self.compacted_to = min(self.compacted_to, revision)
        self.restores += 1


class Ingester:
    """Lists and watches Webs for ever; `step` lets it have one answer more.

    `is_idle` once there is nothing to tell.
    """

    def __init__(self, server: Server, log: Log) -> None:
        self.is_idle = False
        self.absence = Absence("the API server")
        self.asked_at = 0
        """Restores of the server when it asked for its version last."""
        self._server = server
        self._log = log
        self._task: asyncio.Task[None] | None = None
        self._parked, self._turn = asyncio.Event(), asyncio.Event()
        self._ends: bool | Exception = False

    async def step(self, *, ends: bool | Exception = False) -> None:
        """Let it have the next line or answer; or else the server ends the connection, in good order or by an error."""
        self._ends = ends
        self._parked.clear()
        if self._task is None:
            self._task = asyncio.create_task(self._watcher().read_on(SERVED, cast("Lane", self), self.resume()))
        else:
            self._turn.set()
        while not self._parked.is_set():
            if self._task.done():
                self._task.result()
                raise AssertionError("an ingester has ended")
            await asyncio.sleep(0)

    async def kill(self) -> None:
        """Forget everything, and begin again at the next step."""
        self.is_idle = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        self._turn.clear()

    async def submit(self, messages: Sequence[Message]) -> None:
        """Take messages into the log, as a lane does."""
        for message in messages:
            record = decode(parse_header_lines(message.headers), message.payload)
            self._log.append(record, int(message.subject.split(".")[2]))

    async def request(self, _method: str, _path: str, *, query: Mapping[str, str], **_: object) -> Answer:
        """Answer a list of one object, which nobody looks at but for its version."""
        assert query == {"limit": "1"}
        await self._next()
        self.asked_at = self._server.restores
        body = {"metadata": {"resourceVersion": str(self._server.revision)}, "items": []}
        return Answer(200, {}, msgspec.json.encode(body))

    @asynccontextmanager
    async def stream(
        self, _path: str, *, query: Mapping[str, str], silence: timedelta
    ) -> AsyncGenerator[AsyncIterator[list[bytes]]]:
        """Stream a watch, as KubeClient does."""
        _ = silence
        yield self._lines(query)

    async def _lines(self, query: Mapping[str, str]) -> AsyncIterator[list[bytes]]:
        server, restores = self._server, self._server.restores
        lines = self._listing() if "sendInitialEvents" in query else self._watching(int(query["resourceVersion"]))
        while await self._next():
            if server.restores != restores:
                raise NoAnswer("the connection broke")
            yield [next(lines)]
        if isinstance(self._ends, Exception):
            raise self._ends

    def _listing(self) -> Iterator[bytes]:
        position = self._server.revision
        for body in [body for _, body in sorted(self._server.objects.items())]:
            yield _line("ADDED", recorded(body))
        for happening in self._untold(position)[:2]:
            position = happening.revision
            yield _told(happening)
        yield _bookmark(position, annotations={INITIAL_EVENTS_END: "true"})
        yield from self._watching(position)

    def _watching(self, position: int) -> Iterator[bytes]:
        if position < self._server.compacted_to:
            raise ApiError("WATCH", WEBS, 410, reason="Expired", message="too old")
        while True:
            untold = self._untold(position)
            position = untold[0].revision if untold else position
            self.is_idle = len(untold) <= 1
            yield _told(untold[0]) if untold else _bookmark(position)

    async def _next(self) -> bool:
        """Wait for the next step; tells whether the connection goes on."""
        self._parked.set()
        await self._turn.wait()
        self._turn.clear()
        self.is_idle = False
        return not self._ends

    def _watcher(self) -> Watcher:
        async def check_cluster() -> None:
            return

        connection = SimpleNamespace(absence=Absence("the log"))
        writer = partial(MessageWriter, CLUSTER, PARTITIONS)
        stream = SimpleNamespace(writer=writer, max_age=timedelta(0), connection=connection)
        watcher = Watcher(
            cast("KubeClient", self),
            cast("LogStream", stream),
            cast("Appender", SimpleNamespace()),
            Redactor(),
            WATCHED,
            check_cluster=check_cluster,
        )
        watcher._troubles.backoff = Backoff(timedelta(0), timedelta(0))
        return watcher

    def resume(self) -> Decision:
        """Where one that begins anew goes on."""
        return decide(
            (),
            sync=self._last(SyncStarted, SyncFinished),
            gap=self._last(GapNoted, HistoryReverted),
            seen={"": self._last(ObjectSeen, ObjectDeleted)},
            bookmark=self._last(BookmarkNoted),
        )

    def _last(self, *kinds: type) -> LoggedRecord | None:
        return next((logged for logged in reversed(self._log.records) if isinstance(logged.record, kinds)), None)

    def _untold(self, position: int) -> list[Happening]:
        return [happening for happening in self._server.happenings if happening.revision > position]


def _told(happening: Happening) -> bytes:
    return _line("DELETED" if happening.is_deletion else "MODIFIED", happening.body)


def _line(kind: str, body: bytes) -> bytes:
    return msgspec.json.encode({"type": kind, "object": msgspec.Raw(body)})


def _bookmark(version: int, **metadata: Any) -> bytes:
    return _line("BOOKMARK", msgspec.json.encode({"metadata": {"resourceVersion": str(version), **metadata}}))
