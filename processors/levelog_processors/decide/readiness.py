"""Which views and wakeups may be decided: their resources are listed, their causes are folded everywhere."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from levelog.wire.objects import ObjectKey, Partition
from levelog.wire.subjects import partition_subjects
from levelog_log.stream import LogStream
from levelog_processors.program import BoundView, Program
from levelog_store.connect.database import Database
from levelog_store.decide import inputreads as stored
from levelog_store.decide.decisions import PendingWake
from levelog_store.rows import Scope, SyncRow


class Readiness:
    """What the lists tell so far."""

    def __init__(self, program: Program, rows: Collection[SyncRow] = (), *, partitions: int) -> None:
        self._program = program
        self.namespaces: Final[Mapping[str, tuple[str, ...]]] = {
            row.resource: tuple(row.namespaces.split(",")) for row in rows if row.namespaces
        }
        """Namespaces that are watched of each resource; not there: all."""
        self.others: Final = {
            row.resource: (row.api_version, declared)
            for row in rows
            if (declared := self._declared(row.resource)) and row.api_version not in ("", declared)
        }
        """Resources that are recorded in another version than is declared, with both."""
        complete = Counter(
            row.resource for row in rows if row.finished_sequence > 0 and row.resource not in self.others
        )
        self.listed: Final = frozenset(name for name, count in complete.items() if count == partitions)
        """Resources that were listed once, in all partitions and the declared version."""

    @property
    def views(self) -> list[str]:
        """Names of the views that may decide."""
        return [v.name for v in self._program.views.values() if v.reads <= self.listed and self._agree(v)]

    def _declared(self, resource: str) -> str:
        found = self._program.resources.get(resource)
        return found.api_version if found else ""

    def _agree(self, view: BoundView) -> bool:
        """Tell whether all that a view reads is of the same namespaces: after a change, one list ends before others."""
        resources = self._program.resources
        placed = [name for name in view.reads if name in resources and resources[name].scope != "Cluster"]
        return len({self.namespaces.get(name, ()) for name in placed}) <= 1


def is_watched(program: Program, namespaces: Mapping[str, tuple[str, ...]], key: ObjectKey) -> bool:
    """Tell whether the log will show the changes of an object."""
    resource = str(key.group_resource)
    return resource in program.watched and key.namespace in namespaces.get(resource, (key.namespace,))


class Lag(Struct):
    """Tells which wakeups have to wait until the partitions that their views read are folded up to their cause.

    The cause may lie in another processor's partition, and so beyond what this one has read of its own.
    """

    database: Database
    scope: Scope
    program: Program
    stream: LogStream | None
    owned: frozenset[int]
    """Partitions that this processor has."""
    own_folded_to: int
    folded_to: dict[int, int] | None = None
    """All partitions, once they were looked up."""
    ends: dict[int, int] = {}
    """Sequence of the last record of partitions, as far as that was asked."""

    async def concerns(self, wake: PendingWake) -> bool:
        """Tell whether the wakeup's view reads across partitions, one of which is behind."""
        if (
            self.stream is None
            or len(self.owned) == self.scope.partitions
            or not self.program.reads_elsewhere(self.program.views[wake.view])
        ):
            return False
        if self.folded_to is None:
            async with self.database.reading() as connection:
                self.folded_to = await stored.read_checkpoints(connection, self.scope)
        for partition, sequence in self.folded_to.items():
            if sequence >= wake.cause or (partition in self.owned and self.own_folded_to >= wake.cause):
                continue
            if await self._end(self.stream, partition) > sequence:
                return True
        return False

    async def _end(self, stream: LogStream, partition: int) -> int:
        """Sequence of the last record of a partition, which may lie far before the end of the log."""
        if partition not in self.ends:
            last = await stream.last_record(partition_subjects(stream.cluster, Partition(partition)))
            self.ends[partition] = last.sequence if last else 0
        return self.ends[partition]
