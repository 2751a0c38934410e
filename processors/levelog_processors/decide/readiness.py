"""Which views may be decided: their resources are listed."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from msgspec.structs import replace

from levelog_base.wire.objects import ObjectKey
from levelog_processors.bound import BoundView
from levelog_processors.program import Program
from levelog_store.decide.decisions import OpenIntent
from levelog_store.rows import SyncRow


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


def as_watched(intent: OpenIntent, program: Program, namespaces: Mapping[str, tuple[str, ...]]) -> OpenIntent:
    """The intent as the log will show it: not at all if its target is not watched any more."""
    is_awaited = intent.state == "written" and intent.is_watched
    if not is_awaited or is_watched(program, namespaces, ObjectKey.parse(intent.target)):
        return intent
    return replace(intent, is_watched=False)
