"""Ingesters that share a log and know nothing of each other, each stepped from one record to the next.

They go on where the real `decide` says. A list is a snapshot of a moment before its beginning is in the log, as pages
are; what happens while it is told follows before its end, as in a streamed list. One that is not stepped is a process
that was paused.
"""

from collections.abc import Generator

from levelog.wire.objects import GroupResource, Uid, Version
from levelog.wire.records import (
    BookmarkNoted,
    GapNoted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    Origin,
    SyncFinished,
    SyncStarted,
)
from levelog.wire.subjects import partition_of
from levelog_ingest.resume import ResumeAt, decide
from rigs.machine.cluster import GROUP, WEBS, Cluster, Happening, recorded
from rigs.machine.log import PARTITIONS, Log
from rigs.machine.operator import BEGIN

RESOURCE = GroupResource(group=GROUP, resource=WEBS)


class Server(Cluster):
    """A cluster that forgets what happened before `compacted_to`."""

    def __init__(self) -> None:
        super().__init__()
        self.compacted_to = 0


class Ingester:
    """Lists and watches Webs for ever; `step` tells one thing more. `is_idle` once there is nothing to tell."""

    def __init__(self, name: str, server: Server, log: Log) -> None:
        self.is_idle = False
        self._name = name
        self._server = server
        self._log = log
        self._lists = 0
        self._telling = self._tell()

    def step(self) -> None:
        """Tell one thing more."""
        next(self._telling)

    def kill(self) -> None:
        """Forget everything, and begin again at the next step."""
        self.is_idle = False
        self._telling = self._tell()

    def _tell(self) -> Generator[None, None, None]:
        position = self._resume()
        yield
        while True:
            if position is not None and position < self._server.compacted_to:
                self._mark(GapNoted(resource=RESOURCE, reason="410", since=Version(position), time=BEGIN))
                position = None
                yield
            if position is None:
                position = yield from self._list()
            untold = self._untold(position)
            self.is_idle = not untold
            if untold:
                position = self._record(untold[0], "watch")
            else:
                self._mark(BookmarkNoted(resource=RESOURCE, version=Version(position), time=BEGIN))
            yield

    def _list(self) -> Generator[None, None, int]:
        self._lists += 1
        sync_id = f"{self._name}-{self._lists}"
        position = self._server.revision
        listed = [
            Happening(
                int(body["metadata"]["resourceVersion"]),
                key,
                is_deletion=False,
                uid=body["metadata"]["uid"],
                body=recorded(body),
            )
            for key, body in sorted(self._server.objects.items())
        ]
        yield
        self._mark(SyncStarted(resource=RESOURCE, sync_id=sync_id, time=BEGIN))
        for happening in listed:
            yield
            self._record(happening, "list")
        yield
        for happening in self._untold(position)[:2]:
            position = self._record(happening, "list")
            yield
        self._mark(SyncFinished(resource=RESOURCE, sync_id=sync_id, version=Version(position), time=BEGIN))
        yield
        return position

    def _resume(self) -> int | None:
        decision = decide(
            (),
            sync=self._last(SyncStarted, SyncFinished),
            gap=self._last(GapNoted),
            seen={"": self._last(ObjectSeen, ObjectDeleted)},
            bookmark=self._last(BookmarkNoted),
        )
        return decision.versions[""] if isinstance(decision, ResumeAt) else None

    def _last(self, *kinds: type) -> LoggedRecord | None:
        return next((logged for logged in reversed(self._log.records) if isinstance(logged.record, kinds)), None)

    def _untold(self, position: int) -> list[Happening]:
        return [happening for happening in self._server.happenings if happening.revision > position]

    def _record(self, happening: Happening, origin: Origin) -> int:
        record = (ObjectDeleted if happening.is_deletion else ObjectSeen)(
            key=happening.key,
            uid=Uid(happening.uid),
            version=Version(happening.revision),
            origin=origin,
            time=BEGIN,
            body=happening.body,
        )
        self._log.append(record, partition_of(happening.key, PARTITIONS))
        return happening.revision

    def _mark(self, record: SyncStarted | SyncFinished | GapNoted | BookmarkNoted) -> None:
        for partition in range(PARTITIONS):
            self._log.append(record, partition)
