"""The revisions of objects, computed from the log's records."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import (
    GapNoted,
    HistoryReverted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    ObjectUnreadable,
    SyncFinished,
    SyncStarted,
    Unreadable,
    Written,
)
from levelog_history.differences import Difference, differences
from levelog_processors.program import Program
from levelog_processors.state.state import State
from levelog_store.rows import StoredObject, Tombstone

Happened: TypeAlias = Literal["created", "found", "changed", "rewritten", "recreated", "deleted", "swept", "unreadable"]
"""`found`: by a list, nobody saw it being made; `rewritten`: no field has changed; `recreated`: another incarnation
under the same name; `swept`: a list left it out, nobody saw it go; `unreadable`: the record is no JSON of an object."""

_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


class Revision(Struct, frozen=True, kw_only=True):
    """An object as a record left it."""

    sequence: int
    """Sequence of the record in the log."""
    time: datetime
    """The time of the record, UTC."""
    object: str
    """`webs.example.com/default/shop`"""
    happened: Happened
    uid: str
    version: int
    written: Written = Written()
    """The field manager of the last write of the object, and its time, as the API has them."""
    is_listed: bool = False
    """A list showed it: versions between this one and the one before may never have been seen."""
    differences: list[Difference] = []
    """Differences from the revision before; none for the first, and for deletions."""
    body: bytes = b""
    """JSON of the object; of a deleted one the last that was known."""

    @property
    def is_gone(self) -> bool:
        """Tell whether the object is deleted in this revision."""
        return self.happened in ("deleted", "swept")

    @property
    def is_doomed(self) -> bool:
        """Tell whether somebody has asked in this revision to delete the object; the API does not say who."""
        return any(each.path == "metadata.deletionTimestamp" and each.before is UNSET for each in self.differences)

    def manifest(self) -> dict[str, Any]:
        """The object, decoded."""
        return _DECODER.decode(self.body)


class Missing(Struct, frozen=True, kw_only=True):
    """History of a resource that was never seen, although the watch continued."""

    sequence: int
    time: datetime
    resource: str
    reason: str


class Revisions:
    """Turns records, taken in the order of the log, into revisions of the objects that are wanted.

    It folds them as a processor does, with no code: what changes nothing in State, as it repeats or comes too late, is
    no revision.
    """

    def __init__(self, is_wanted: Callable[[ObjectKey], bool]) -> None:
        self._is_wanted = is_wanted
        self._state = State(Program(()), "", 0)
        self._missing: set[tuple[str, datetime]] = set()

    def take(self, logged: LoggedRecord) -> Iterator[Revision | Missing]:
        """The revisions in one record: at most one, but of a list that ends one for each object that it left out."""
        record = logged.record
        match record:
            case ObjectSeen(key=key) | ObjectDeleted(key=key) | Unreadable(key=key) | ObjectUnreadable(key=key):
                if key is None or not self._is_wanted(key):
                    return
            case HistoryReverted():
                reason = f"history went back from version {record.since} to {record.version}"
                yield from self._gap(logged.sequence, record, reason)
            case GapNoted():
                yield from self._gap(logged.sequence, record, record.reason)
                return
            case SyncStarted() | SyncFinished():
                pass
            case _:
                return
        changes = self._state.fold([logged])
        places = [*changes.objects, *changes.tombstones, *(place for _, place in changes.unreadable)]
        before = {name: self._state.objects.get(name) for name in places}
        self._state.apply(changes)
        for name, known in before.items():
            yield _revision(logged, name, known, changes.objects.get(name) or changes.tombstones.get(name))

    def _gap(self, sequence: int, record: GapNoted | HistoryReverted, reason: str) -> Iterator[Missing]:
        """One for each gap, which is noted in every partition."""
        place = str(record.resource), record.time
        if place not in self._missing:
            self._missing.add(place)
            yield Missing(sequence=sequence, time=record.time, resource=str(record.resource), reason=reason)


def _revision(
    logged: LoggedRecord, name: str, known: StoredObject | None, now: StoredObject | Tombstone | None
) -> Revision:
    """What a record made of an object that was known so; without anything now, the record could not be read."""
    record = logged.record
    told = record if isinstance(record, ObjectSeen | ObjectDeleted) else None
    body = told.body if told is not None else b""
    manifest = _decoded(body)
    found: list[Difference] = []
    happened: Happened = "unreadable"
    if isinstance(now, Tombstone):
        happened = "deleted" if told is not None else "swept"
        body = known.body if manifest is None and known is not None else body
    elif now is not None and manifest is not None and known is None:
        happened = "found" if told is not None and told.origin == "list" else "created"
    elif now is not None and manifest is not None and known is not None:
        found = differences(_decoded(known.body) or {}, manifest) if known.uid == now.uid else []
        happened = "recreated" if known.uid != now.uid else "changed" if found else "rewritten"
    of = now or told or known
    return Revision(
        sequence=logged.sequence,
        time=record.time,
        object=name,
        happened=happened,
        uid=of.uid if of is not None else "",
        version=of.version if of is not None else 0,
        written=told.written if told is not None else Written(),
        is_listed=happened == "swept" or (told is not None and told.origin == "list"),
        differences=found,
        body=body,
    )


def _decoded(body: bytes) -> Mapping[str, Any] | None:
    try:
        manifest = _DECODER.decode(body)
        return manifest if isinstance(manifest.get("metadata"), Mapping) else None
    except (msgspec.MsgspecError, ValueError, RecursionError):  # such a record is told as unreadable, not passed over
        return None
