"""Who writes which objects: how often, how regularly, with what effect, and who undoes it."""

import statistics
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct, field

from levelog_base.errors import ConfigurationError
from levelog_base.wire.canonical import is_other
from levelog_base.wire.objects import GroupResource, ObjectKey
from levelog_history.happenings import entries_in
from levelog_history.reach import Moment, nothing_of
from levelog_history.records import RecordSource
from levelog_history.revisions import Revision
from levelog_history.selection import Selected, has_any
from levelog_store.look.recall import Woke

LEAST_INTERVALS: Final = 5
"""Between writes; of fewer nothing is said about a period."""
SHORTEST_SECONDS: Final = 0.1
"""A shorter median is that of a burst: as fast as the watch tells of it."""
REGULAR: Final = 0.2
"""Half of the intervals lie within this part of their median at both sides: then they have a period."""


class Period(Struct, frozen=True):
    """Time between two writes of one object: the median, and how far half of the times lie from it at most."""

    seconds: float
    spread_seconds: float


class ManagerWrites(Struct, frozen=True, kw_only=True):
    """One field manager on one resource."""

    manager: str
    """Empty where the API did not say."""
    resource: str
    objects: int
    writes: int
    """Revisions that it wrote last; a list that showed several writes at once counts as one."""
    idle: int
    """The number of these that changed no field."""
    fields: dict[str, int]
    """The number of writes to each field, the most frequent first; items of lists and maps together."""
    period: Period | None
    """None where writes are few or irregular."""


class _Tally(Struct):
    writes: int = 0
    idle: int = 0
    fields: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    times: dict[str, list[datetime]] = field(default_factory=lambda: defaultdict(list))
    """Times of the writes that the watch showed, by object."""


class Writers:
    """Counts revisions, in the order of the log.

    What a list found first is nobody's write of the time that is told about. Of deletions, and of marks for them, the
    API does not say whose they are.
    """

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], _Tally] = defaultdict(_Tally)

    def take(self, revision: Revision) -> None:
        """Count one revision."""
        if revision.is_gone or revision.is_doomed or revision.happened in ("found", "unreadable"):
            return
        resource = str(ObjectKey.parse(revision.object).group_resource)
        tally = self._tallies[revision.written.manager, resource]
        tally.writes += 1
        tally.idle += revision.happened == "rewritten"
        for name in {_field(difference.path) for difference in revision.differences}:
            tally.fields[name] += 1
        times = tally.times[revision.object]
        if not revision.is_listed:
            times.append(revision.time)

    def found(self) -> list[ManagerWrites]:
        """The writes of each field manager, those with most writes first."""
        writers = [
            ManagerWrites(
                manager=manager,
                resource=resource,
                objects=len(tally.times),
                writes=tally.writes,
                idle=tally.idle,
                fields=dict(sorted(tally.fields.items(), key=lambda item: (-item[1], item[0]))),
                period=_period(tally.times.values()),
            )
            for (manager, resource), tally in self._tallies.items()
        ]
        return sorted(writers, key=lambda writer: (-writer.writes, writer.resource, writer.manager))


class Contested(Struct, frozen=True, kw_only=True):
    """One field that a field manager set back to what it was, each time another one had changed it."""

    field: str
    resource: str
    objects: int
    manager: str
    undoes: str
    """The other manager."""
    times: int


class Contests:
    """Counts who undoes whom, in the order of the log: a manager sets a field to what it had set it to before another.

    One time alone is somebody's correction; it counts if the two go on, in whatever direction.
    """

    def __init__(self) -> None:
        self._creators: dict[str, str] = {}
        """By uid, as what follows: another incarnation has other writers."""
        self._last: dict[tuple[str, str], str] = {}
        self._values: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
        self._undone: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)

    def take(self, revision: Revision) -> None:
        """Look at one revision."""
        manager, name, uid = revision.written.manager, revision.object, revision.uid
        if revision.happened in ("created", "found", "recreated"):
            self._creators[uid] = manager
        if revision.happened != "changed" or not manager:
            return
        resource = str(ObjectKey.parse(name).group_resource)
        for difference in revision.differences:
            place, path = (uid, difference.path), difference.path
            values = self._values[place]
            last = self._last.get(place) or self._creators.get(uid, "")
            if last and last not in values:
                values[last] = difference.before
            if last and last != manager and manager in values and not is_other(values[manager], difference.after):
                self._undone[resource, path, manager, last].append(name)
            values[manager], self._last[place] = difference.after, manager

    def found(self) -> list[Contested]:
        """The contests that go on, most often undone first."""
        contested = [
            Contested(
                field=path, resource=resource, objects=len(set(names)), manager=manager, undoes=other, times=len(names)
            )
            for (resource, path, manager, other), names in self._undone.items()
            if len(names) + len(self._undone.get((resource, path, other, manager), ())) > 1
        ]
        return sorted(contested, key=lambda each: (-each.times, each.resource, each.field, each.manager))


class FieldWakes(Struct, kw_only=True):
    """The outcome of one manager's changes of one field."""

    field: str
    resource: str
    manager: str
    """Empty where the API did not say."""
    changes: int = 0
    woke: int = 0
    """Of these, such that a level was looked at."""
    wrote: int = 0
    """And led to a write."""


class Wakings:
    """Counts what woke levels, by field: as for `Writers`, of whom the first two steps of a path are one field."""

    def __init__(self, woke: Mapping[int, Woke]) -> None:
        """`woke`: what records came to, by sequence."""
        self._woke = woke
        self._fields: dict[tuple[str, str, str], FieldWakes] = {}

    def take(self, revision: Revision) -> None:
        """Count one revision."""
        if revision.is_gone or revision.is_doomed or not revision.differences:
            return
        resource, manager = str(ObjectKey.parse(revision.object).group_resource), revision.written.manager
        came = self._woke.get(revision.sequence)
        for name in {_field(difference.path) for difference in revision.differences}:
            made = FieldWakes(field=name, resource=resource, manager=manager)
            each = self._fields.setdefault((resource, name, manager), made)
            each.changes += 1
            each.woke += came is not None
            each.wrote += came is not None and came.wrote

    def found(self) -> list[FieldWakes]:
        """Those first that woke most often without a write."""
        return sorted(
            self._fields.values(), key=lambda each: (each.wrote - each.woke, -each.changes, each.resource, each.field)
        )


async def revisions_after(
    source: RecordSource, selected: Sequence[Selected], start: Moment
) -> AsyncGenerator[Revision]:
    """Revisions of selected objects after a moment, in the order of the log; without any selected, of all objects.

    Raises ConfigurationError if there is no record of a selected object.
    """
    chosen = selected or [Selected(GroupResource.parse(name)) for name in await source.resources()]
    has_any_record = not selected
    if not chosen:
        return
    async for entry, sequence in entries_in(source.about(chosen), partial(has_any, chosen)):
        has_any_record = True
        if isinstance(entry, Revision) and start.is_before(sequence, entry.time):
            yield entry
    if not has_any_record:
        raise ConfigurationError(await nothing_of(source, selected))


def _field(path: str) -> str:
    """The field that a path leads to or into: two steps, `status.conditions`, `metadata.annotations`."""
    return ".".join(path.replace("[", ".").split(".")[:2])


def _period(times: Iterable[list[datetime]]) -> Period | None:
    intervals = sorted((later - earlier).total_seconds() for each in times for earlier, later in pairwise(each))
    if len(intervals) < LEAST_INTERVALS:
        return None
    median = statistics.median(intervals)
    spread = statistics.median(abs(interval - median) for interval in intervals)
    return Period(median, spread) if median >= SHORTEST_SECONDS and spread <= REGULAR * median else None
