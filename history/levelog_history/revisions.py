"""The revisions of objects, computed from the log's records."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from levelog_base.wire.lists import Lists
from levelog_base.wire.objects import GroupResource, ObjectKey
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
    follows,
    is_unlisted,
    swept_version,
)
from levelog_history.differences import Difference, differences

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


class _State(Struct):
    """The state of an object after the records so far."""

    key: ObjectKey
    partition: int
    uid: str
    version: int
    sequence: int
    is_gone: bool
    body: bytes


class Revisions:
    """Turns records, taken in the order of the log, into revisions of the objects that are wanted.

    Records that repeat or come too late are no revisions, just as the tables do not change by them.
    """

    def __init__(self, is_wanted: Callable[[ObjectKey], bool]) -> None:
        self._is_wanted = is_wanted
        self._states: dict[str, _State] = {}
        self._lists = Lists()
        self._missing: set[tuple[str, datetime]] = set()

    def take(self, logged: LoggedRecord) -> Iterator[Revision | Missing]:
        """The revision in one record."""
        record = logged.record
        match record:
            case ObjectSeen() | ObjectDeleted():
                if self._is_wanted(record.key) and not self._lists.is_outdated(logged, record):
                    yield from self._object(logged, record)
            case SyncStarted():
                if self._lists.begin(logged, record):
                    self._await_list(logged.partition, record.resource, is_other_history=False)
            case SyncFinished():
                yield from self._swept(logged, record)
            case GapNoted():
                yield from self._gap(logged.sequence, record, record.reason)
            case HistoryReverted():
                self._lists.revert(logged, record)
                self._await_list(logged.partition, record.resource, is_other_history=True)
                reason = f"history went back from version {record.since} to {record.version}"
                yield from self._gap(logged.sequence, record, reason)
            case Unreadable() | ObjectUnreadable():
                yield from self._skipped(logged, record)
            case _:
                return

    def _object(self, logged: LoggedRecord, record: ObjectSeen | ObjectDeleted) -> Iterator[Revision]:
        name = str(record.key)
        state = self._states.get(name)
        if state is not None and not follows(record, state.uid, state.version, is_gone=state.is_gone):
            if isinstance(record, ObjectSeen) and (record.uid, record.version) == (state.uid, state.version):
                state.sequence = logged.sequence  # a list that holds it does not sweep it
            return
        manifest = _decoded(record.body)
        known = None if state is None or state.is_gone else state
        found: list[Difference] = []
        if manifest is None:
            happened: Happened = "unreadable"
        elif isinstance(record, ObjectDeleted):
            happened = "deleted"
        elif known is None:
            happened = "found" if record.origin == "list" else "created"
        elif known.uid != record.uid:
            happened = "recreated"
        else:
            found = differences(_decoded(known.body) or {}, manifest)
            happened = "changed" if found else "rewritten"
        yield Revision(
            sequence=logged.sequence,
            time=record.time,
            object=name,
            happened=happened,
            uid=record.uid,
            version=record.version,
            written=record.written,
            is_listed=record.origin == "list",
            differences=found,
            body=record.body,
        )
        if manifest is not None:
            self._states[name] = _State(
                key=record.key,
                partition=logged.partition,
                uid=record.uid,
                version=record.version,
                sequence=logged.sequence,
                is_gone=isinstance(record, ObjectDeleted),
                body=record.body,
            )

    def _skipped(self, logged: LoggedRecord, record: Unreadable | ObjectUnreadable) -> Iterator[Revision]:
        """A version of which only that much is known; a list that holds it does not sweep the object."""
        if record.key is None or not self._is_wanted(record.key):
            return
        state = self._states.get(str(record.key))
        if state is not None:
            state.sequence = logged.sequence
        yield Revision(
            sequence=logged.sequence,
            time=record.time,
            object=str(record.key),
            happened="unreadable",
            uid=state.uid if state else "",
            version=state.version if state else 0,
            is_listed=False,
            body=b"",
        )

    def _swept(self, logged: LoggedRecord, record: SyncFinished) -> Iterator[Revision]:
        begun = self._lists.end(logged, record)
        if begun is None:
            return
        for name, state in self._states.items():
            if state.is_gone or (state.partition, state.key.group_resource) != (logged.partition, record.resource):
                continue
            if is_unlisted(
                record, begun=begun, sequence=state.sequence, version=state.version, namespace=state.key.namespace
            ):
                version = swept_version(record, version=state.version, namespace=state.key.namespace)
                state.is_gone, state.version = True, version
                yield Revision(
                    sequence=logged.sequence,
                    time=record.time,
                    object=name,
                    happened="swept",
                    uid=state.uid,
                    version=version,
                    is_listed=True,
                    body=state.body,
                )

    def _await_list(self, partition: int, resource: GroupResource, *, is_other_history: bool) -> None:
        """Let what is told next of a resource be newer."""
        for state in self._states.values():
            if (state.partition, state.key.group_resource) == (partition, resource):
                state.version = 0 if is_other_history else state.version - 1

    def _gap(self, sequence: int, record: GapNoted | HistoryReverted, reason: str) -> Iterator[Missing]:
        """One for each gap, which is noted in every partition."""
        place = str(record.resource), record.time
        if place not in self._missing:
            self._missing.add(place)
            yield Missing(sequence=sequence, time=record.time, resource=str(record.resource), reason=reason)


def _decoded(body: bytes) -> Mapping[str, Any] | None:
    try:
        manifest = _DECODER.decode(body)
        return manifest if isinstance(manifest.get("metadata"), Mapping) else None
    except (msgspec.MsgspecError, ValueError, RecursionError):  # such a record is told as unreadable, not passed over
        return None
