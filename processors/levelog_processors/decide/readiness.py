"""Which views may decide: those all of whose resources were listed once, everywhere and in the same namespaces."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from levelog.objects import ObjectKey
from levelog_processors.program import BoundView, Program
from levelog_store.rows import SyncRow


class Readiness:
    """What the lists tell so far."""

    def __init__(self, program: Program, rows: Collection[SyncRow] = (), *, partitions: int) -> None:
        self._program = program
        self.namespaces: Final[Mapping[str, tuple[str, ...]]] = {
            row.resource: tuple(row.namespaces.split(",")) for row in rows if row.namespaces
        }
        """Namespaces that are watched of each resource; not there: all."""
        complete = Counter(row.resource for row in rows if row.finished_sequence > 0)
        self.listed: Final = frozenset(name for name, count in complete.items() if count == partitions)
        """Resources that were listed once, in all partitions."""

    @property
    def views(self) -> list[str]:
        """Names of the views that may decide."""
        return [v.name for v in self._program.views.values() if v.reads <= self.listed and self._agree(v)]

    def _agree(self, view: BoundView) -> bool:
        """Tell whether all that a view reads is of the same namespaces: after a change, one list ends before others."""
        resources = self._program.resources
        placed = [name for name in view.reads if name in resources and resources[name].scope == "Namespaced"]
        return len({self.namespaces.get(name, ()) for name in placed}) <= 1


def is_watched(program: Program, namespaces: Mapping[str, tuple[str, ...]], key: ObjectKey) -> bool:
    """Tell whether the log will show what becomes of an object."""
    resource = str(key.group_resource)
    return resource in program.watched and key.namespace in namespaces.get(resource, (key.namespace,))
