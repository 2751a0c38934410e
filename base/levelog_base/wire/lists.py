"""Lists of resources as each partition sees them begin and end; the fold keeps the same in rows."""

from typing import TypeAlias

from levelog_base.wire.objects import is_newer
from levelog_base.wire.records import (
    HistoryReverted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    SyncFinished,
    SyncStarted,
    api_version_of,
    with_begun,
)

_Place: TypeAlias = tuple[int, str]
"""Partition and resource."""


class Lists:
    """Lists under way, and the newest API version of each resource."""

    def __init__(self) -> None:
        self._begun: dict[_Place, dict[str, int]] = {}
        self._versions: dict[_Place, str] = {}

    def is_outdated(self, logged: LoggedRecord, record: ObjectSeen | ObjectDeleted) -> bool:
        """Tell whether a record is in an older API version than its resource is recorded in."""
        known = self._versions.get((logged.partition, str(record.key.group_resource)), "")
        return bool(known) and is_newer(known, api_version_of(record))

    def begin(self, logged: LoggedRecord, record: SyncStarted) -> bool:
        """Take the beginning of a list; tells whether it is the first in a newer API version, which replaces all.

        One in an older version says nothing: its process does not know yet of the newer one.
        """
        place = logged.partition, str(record.resource)
        known = self._versions.get(place, "")
        if is_newer(known, record.api_version):
            return False
        is_replacing = is_newer(record.api_version, known)
        before = {} if is_replacing else self._begun.get(place, {})
        self._versions[place] = record.api_version or known
        self._begun[place] = with_begun(before, record.sync_id, logged.sequence)
        return is_replacing

    def revert(self, logged: LoggedRecord, record: HistoryReverted) -> None:
        """Forget the lists under way: they are of the other history, and their ends say nothing."""
        self._begun.pop((logged.partition, str(record.resource)), None)

    def end(self, logged: LoggedRecord, record: SyncFinished) -> int | None:
        """The sequence at which the list began that ends; None: that is not known."""
        return self._begun.get((logged.partition, str(record.resource)), {}).pop(record.sync_id, None)
