"""A log in memory, and an ingest that writes what happens in the cluster to it: watches, lists, repetitions."""

from collections.abc import Iterable
from datetime import datetime
from itertools import count
from typing import Final

from msgspec import Struct

from levelog_base.wire.objects import Cluster as ClusterUid
from levelog_base.wire.objects import GroupResource, ObjectKey, Partition, Sequence, Uid, Version
from levelog_base.wire.records import (
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    ReceiptNoted,
    Record,
    SyncFinished,
    SyncStarted,
)
from levelog_base.wire.subjects import partition_of
from levelog_log.doubts import Doubts
from rigs.machine.cluster import GROUP, KINDS, Cluster, Happening, recorded

PARTITIONS: Final = 2
CLUSTER: Final = ClusterUid("machine")


class Last(Struct, frozen=True):
    """The last record of a partition."""

    sequence: int


class Log:
    """Records in order; what processors ask of a LogStream."""

    cluster, name = CLUSTER, "log"

    def __init__(self) -> None:
        self.doubts = Doubts(replicas=1)
        self.records: list[LoggedRecord] = []
        """All that ever were, and have not been lost."""
        self._serial = count(1)
        self.first = 1
        """Sequence of the oldest that has not expired."""

    def append(self, record: Record, partition: int) -> None:
        """Add one record."""
        sequence = len(self.records) + 1
        self.records.append(
            LoggedRecord(
                sequence=Sequence(sequence),
                partition=Partition(partition),
                record_id=f"r{next(self._serial)}",
                record=record,
            )
        )

    def append_receipt(self, receipt: ReceiptNoted) -> None:
        """Add a receipt, to the partition of its parent."""
        self.append(receipt, partition_of(receipt.parent, PARTITIONS))

    def of(self, partitions: Iterable[int], *, after: int) -> list[LoggedRecord]:
        """Records of some partitions, in order."""
        wanted = set(partitions)
        return [logged for logged in self.records[max(after, self.first - 1) :] if logged.partition in wanted]

    def expire(self) -> None:
        """Let all records expire."""
        self.first = len(self.records) + 1

    def restore(self, lost: int) -> int:
        """Lose the newest records, as one that is copied back does; returns the sequence of the last that is left."""
        left = max(self.first, len(self.records) - lost)
        del self.records[left:]
        return left

    def end(self, partition: int, *, up_to: int) -> int:
        """Sequence of a partition's last record up to a position; 0: none."""
        return next((r.sequence for r in reversed(self.records[:up_to]) if r.partition == partition), 0)

    async def last_record(self, subjects: str) -> Last | None:
        """The last record of the partition whose subjects are asked for."""
        found = self.end(int(subjects.split(".")[2]), up_to=len(self.records))
        return Last(found) if found else None

    async def last_sequence(self) -> int:
        """Sequence of the last record."""
        return len(self.records)


class Ingest:
    """Writes the cluster's happenings to the log, as far as it is let."""

    def __init__(self, cluster: Cluster, log: Log, now: datetime) -> None:
        self._cluster = cluster
        self._log = log
        self._now = now
        self._seen_to: dict[str, int] = {}
        """Revision up to which each listed resource is watched."""
        self.namespaces: tuple[str, ...] = ()
        """Those that are watched; none: all."""
        self._lists = 0

    def is_watching(self, resource: str) -> bool:
        """Tell whether the resource was listed."""
        return resource in self._seen_to

    def _is_watched(self, key: ObjectKey) -> bool:
        return not self.namespaces or key.namespace in self.namespaces

    def watch(self, resource: str, most: int = 1000) -> bool:
        """Record what the watch tells next; whether there was anything."""
        since = self._seen_to.get(resource)
        told = (h for h in self._cluster.happenings if since is not None and h.revision > since)
        found = [h for h in told if h.key.resource == resource and self._is_watched(h.key)][:most]
        for happening in found:
            self._record(happening, "watch")
            self._seen_to[resource] = happening.revision
        return bool(found)

    def list(self, resource: str, *, is_finished: bool = True) -> None:
        """Record a list; unless it is finished, the watch goes on where it was, or not at all."""
        self._lists += 1
        kind, sync_id = GroupResource(group=GROUP, resource=resource), f"list-{self._lists}"
        self._mark(SyncStarted(resource=kind, sync_id=sync_id, namespaces=self.namespaces, time=self._now))
        for key, body in sorted(self._cluster.objects.items()):
            if key.resource == resource and self._is_watched(key):
                metadata = body["metadata"]
                happening = Happening(
                    int(metadata["resourceVersion"]), key, is_deletion=False, uid=metadata["uid"], body=recorded(body)
                )
                self._record(happening, "list")
        if is_finished:
            version = Version(self._cluster.revision)
            self._mark(
                SyncFinished(
                    resource=kind, sync_id=sync_id, namespaces=self.namespaces, version=version, time=self._now
                )
            )
            self._seen_to[resource] = self._cluster.revision

    def list_again(self) -> None:
        """Record a list of each resource that is watched."""
        for resource in filter(self.is_watching, KINDS):
            self.list(resource)

    def repeat(self, number: int) -> None:
        """Record again what was recorded, counted from the newest."""
        told = [r for r in self._log.records if isinstance(r.record, ObjectSeen | ObjectDeleted | ReceiptNoted)]
        if told:
            logged = told[-1 - number % len(told)]
            self._log.append(logged.record, logged.partition)

    def _record(self, happening: Happening, origin: str) -> None:
        record = (ObjectDeleted if happening.is_deletion else ObjectSeen)(
            key=happening.key,
            uid=Uid(happening.uid),
            version=Version(happening.revision),
            origin="list" if origin == "list" else "watch",
            time=self._now,
            body=happening.body,
        )
        self._log.append(record, partition_of(happening.key, PARTITIONS))

    def _mark(self, record: SyncStarted | SyncFinished) -> None:
        for partition in range(PARTITIONS):
            self._log.append(record, partition)
