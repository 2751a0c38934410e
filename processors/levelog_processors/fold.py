"""The fold: records and what the tables hold of their objects give the changes to make. No I/O here.

Live processors, replay and `levelog.testing` all run this one function, so that they agree.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from levelog.canonical import canonical, digest
from levelog.records import (
    BookmarkNoted,
    GapNoted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    ReceiptNoted,
    SyncFinished,
    SyncStarted,
    Unreadable,
)
from levelog_processors.program import BoundIndex, BoundView, Program
from levelog_processors.remembering import Memory, memory_of
from levelog_store.rows import (
    ERRORS,
    Changes,
    Checkpoint,
    Entry,
    FoldedReceipt,
    Held,
    StoredObject,
    SyncRow,
    Tombstone,
    Wake,
)

log = logging.getLogger(__name__)

WHOLE_INDEX = "*"
"""Begins the key on which a read of a whole index depends, one for each partition; no canonical key begins so."""

MAX_KEY_BYTES = 1024
"""A longer index key would not fit into a B-tree page beside its neighbours; the entry is marked instead."""

MAX_ENTRIES: Final = 32_767
"""Entries of one object under one key; what the column that numbers them holds."""

MAX_MESSAGE: Final = 1000
"""Characters that are kept of an error's message."""

_OUTCOME_STATE = {
    "written": "written",
    "unchanged": "written",
    "gone": "written",
    "failed": "failed",
    "conflict": "failed",
}


class _Deletion(Struct):
    class Metadata(Struct, rename="camel"):
        deletion_timestamp: str | None = None

    metadata: Metadata


_deletion = msgspec.json.Decoder(_Deletion)


def object_names(records: Iterable[LoggedRecord]) -> set[str]:
    """Objects that a batch speaks of, whose held rows the fold needs."""
    return {str(r.record.key) for r in records if isinstance(r.record, ObjectSeen | ObjectDeleted)}


class _Latest(Struct):
    """The newest record of one object in a batch."""

    record: ObjectSeen | ObjectDeleted
    logged: LoggedRecord


class Fold:
    """Folds one batch, in the order of the log, on top of what is held of its objects."""

    def __init__(self, program: Program, application: str, held: Held) -> None:
        self._program = program
        self._application = application
        self._held = held
        self._changes = Changes()
        self._memories: dict[tuple[str, str, str], tuple[Memory, LoggedRecord]] = {}

    def records(self, records: Sequence[LoggedRecord]) -> Changes:
        """Fold records of any kind but `SyncFinished`."""
        latest: dict[str, _Latest] = {}
        for logged in records:
            self._advance(logged)
            record = logged.record
            match record:
                case ObjectSeen() | ObjectDeleted():
                    name = str(record.key)
                    if self._is_news(name, record, latest.get(name)):
                        if _is_readable(logged, record):
                            latest[name] = _Latest(record, logged)
                    elif isinstance(record, ObjectSeen):
                        self._see_again(name, record, logged, latest.get(name))
                case SyncStarted():
                    self._start_sync(logged, record)
                case ReceiptNoted():
                    if record.application == self._application:
                        self._note_receipt(logged, record)
                case Unreadable():
                    log.error("record %d cannot be read and is skipped: %s", logged.sequence, record.error)
                case SyncFinished():
                    raise TypeError("a finished list is folded by Fold.sweep")
                case GapNoted() | BookmarkNoted():
                    pass
        for name, last in latest.items():
            self._changes.seen_again.pop(name, None)
            self._settle_object(name, last)
        self._remember()
        return self._changes

    def sweep(
        self,
        records: Sequence[LoggedRecord],
        started: Mapping[tuple[int, str], SyncRow],
        unlisted: Sequence[tuple[StoredObject, int]],
    ) -> Changes:
        """Fold `SyncFinished` records.

        `started` are the lists that were begun last, by partition and resource; `unlisted` the objects that the
        finished list left out, with the sequence of its record. They are deleted with the last body held of them, and
        a late record up to the list's version does not revive them.
        """
        finished: dict[int, SyncFinished] = {}
        for logged in records:
            self._advance(logged)
            record = logged.record
            if not isinstance(record, SyncFinished):
                raise TypeError(f"a sweep takes finished lists, not {type(record).__name__}")
            begun = started.get((logged.partition, str(record.resource)))
            if begun is None or begun.sync_id != record.sync_id:
                continue  # another list was begun meanwhile; its end will sweep
            finished[logged.sequence] = record
            views = [view.name for view in self._program.views_of(str(record.resource))]
            self._changes.listed.append((logged.partition, views))
            self._changes.syncs_finished.append(
                msgspec.structs.replace(begun, finished_sequence=logged.sequence, version=record.version)
            )
        for row, sequence in unlisted:
            record = finished[sequence]
            tombstone = Tombstone(
                object=row.object,
                partition=row.partition,
                uid=row.uid,
                version=record.version,
                sequence=sequence,
                deleted_at=record.time,
            )
            self._bury(row.resource, tombstone)
        return self._changes

    def _advance(self, logged: LoggedRecord) -> None:
        self._changes.checkpoints[logged.partition] = Checkpoint(logged.sequence, logged.sequence, logged.record_id)

    def _is_news(self, name: str, record: ObjectSeen | ObjectDeleted, earlier: _Latest | None) -> bool:
        """Tell whether the record is newer than what is known, so that no state ever goes back."""
        if earlier is not None:
            return _follows(record, earlier.record.uid, earlier.record.version, is_gone=_is_deletion(earlier.record))
        if held := self._held.objects.get(name):
            return _follows(record, held.uid, held.version, is_gone=False)
        if tombstone := self._held.tombstones.get(name):
            return _follows(record, tombstone.uid, tombstone.version, is_gone=True)
        return True

    def _see_again(self, name: str, record: ObjectSeen, logged: LoggedRecord, earlier: _Latest | None) -> None:
        """Note that a record repeats the very version that is held, as a list does."""
        held = self._held.objects.get(name)
        if earlier is not None:
            if (earlier.record.uid, earlier.record.version) == (record.uid, record.version):
                earlier.logged = logged
        elif held is not None and (held.uid, held.version) == (record.uid, record.version):
            self._changes.seen_again[name] = logged.sequence

    def _start_sync(self, logged: LoggedRecord, record: SyncStarted) -> None:
        self._changes.syncs_started.append(
            SyncRow(
                partition=logged.partition,
                resource=str(record.resource),
                sync_id=record.sync_id,
                started_sequence=logged.sequence,
                finished_sequence=0,
                namespace=record.namespace,
                version=0,
            )
        )

    def _settle_object(self, name: str, last: _Latest) -> None:
        record, logged = last.record, last.logged
        resource = str(record.key.group_resource)
        if isinstance(record, ObjectDeleted):
            tombstone = Tombstone(
                object=name,
                partition=logged.partition,
                uid=record.uid,
                version=record.version,
                sequence=logged.sequence,
                deleted_at=record.time,
            )
            self._bury(resource, tombstone)
            return
        self._changes.objects[name] = _stored(name, record, logged)
        if name in self._held.tombstones:
            self._changes.tombstones_lifted.add(name)
        before = self._held.objects.get(name)
        views = self._program.views_of(resource)
        if before is not None and before.uid != record.uid:
            self._changes.gone.update((view.name, name) for view in views)
        indices = self._program.indices_of(resource)
        if indices:
            held = self._held.entries.get(name, ())
            fresh = [entry for index in indices for entry in index_entries(index, record.body, held, name)]
            self._replace_entries(name, logged.partition, fresh, logged.sequence)
        for view in views:
            self._wake_parent(view, name, record, logged)

    def _bury(self, resource: str, tombstone: Tombstone) -> None:
        name = tombstone.object
        self._changes.tombstones[name] = tombstone
        self._replace_entries(name, tombstone.partition, (), tombstone.sequence)
        self._changes.gone.update((view.name, name) for view in self._program.views_of(resource))

    def _replace_entries(self, name: str, partition: int, fresh: Iterable[Entry], sequence: int) -> None:
        old = {(e.index, e.key, e.ordinal): e for e in self._held.entries.get(name, ())}
        new = {(e.index, e.key, e.ordinal): e for e in fresh}
        for place, entry in old.items():
            if place not in new:
                self._changes.entries_removed.append((entry.index, entry.key, name, entry.ordinal))
                self._change_key(entry, partition, sequence)
        for place, entry in new.items():
            if old.get(place) != entry:
                self._changes.entries_written.append((name, entry))
                self._change_key(entry, partition, sequence)

    def _change_key(self, entry: Entry, partition: int, sequence: int) -> None:
        self._changes.keys[entry.index, entry.key] = sequence
        if entry.key != ERRORS:
            self._changes.keys[entry.index, f"{WHOLE_INDEX}{partition}"] = sequence

    def _wake_parent(self, view: BoundView, name: str, record: ObjectSeen, logged: LoggedRecord) -> None:
        held = self._held.levels.get((view.name, name))
        inputs = parent_inputs(view, record.body, held.looked_at if held else None)
        if inputs is None:
            self._changes.gone.add((view.name, name))
        elif held is None or (held.parent_uid, held.inputs) != (record.uid, inputs):
            self._changes.wakes[view.name, name] = Wake(logged.partition, logged.sequence)

    def _note_receipt(self, logged: LoggedRecord, record: ReceiptNoted) -> None:
        parent = str(record.parent)
        self._changes.receipts.append(
            FoldedReceipt(
                key=record.key,
                view=record.view,
                parent=parent,
                parent_uid=record.parent_uid,
                partition=logged.partition,
                round=record.round,
                state=_OUTCOME_STATE[record.outcome],
                receipt=canonical(record),
                result_uid=record.target_uid,
                result_version=record.target_version,
                sequence=logged.sequence,
            )
        )
        self._changes.wakes[record.view, parent] = Wake(logged.partition, logged.sequence)
        memory = memory_of(record)
        if memory is not None and memory.index in self._program.indices:
            self._memories[memory.index, memory.key, memory.object] = memory, logged

    def _remember(self) -> None:
        """Write what the last receipt of each target says of it."""
        for (index, key, name), (memory, logged) in self._memories.items():
            if memory.entry is None:
                self._changes.entries_removed.append((index, key, name, 0))
            else:
                self._changes.entries_written.append((name, memory.entry))
            self._change_key(memory.entry or Entry(index, key, 0, b""), logged.partition, logged.sequence)


def _is_deletion(record: ObjectSeen | ObjectDeleted) -> bool:
    return isinstance(record, ObjectDeleted)


def _follows(record: ObjectSeen | ObjectDeleted, uid: str, version: int, *, is_gone: bool) -> bool:
    """Tell whether a record comes after the state (uid, version); versions of a resource grow over incarnations too.

    The deletion of what is held may bear the very version that is held.
    """
    if not is_gone and _is_deletion(record) and record.uid == uid:
        return record.version >= version
    return record.version > version


def _is_readable(logged: LoggedRecord, record: ObjectSeen | ObjectDeleted) -> bool:
    try:
        record.body.decode()
        _deletion.decode(record.body)
    except (msgspec.MsgspecError, ValueError) as error:
        name = str(record.key)
        log.warning(
            "record %d of %s is not the JSON of an object and is skipped: %s",
            logged.sequence,
            name,
            error,
            extra={"object": name, "sequence": logged.sequence},
        )
        return False
    return True


def _stored(name: str, record: ObjectSeen, logged: LoggedRecord) -> StoredObject:
    return StoredObject(
        object=name,
        partition=logged.partition,
        resource=str(record.key.group_resource),
        namespace=record.key.namespace,
        name=record.key.name,
        uid=record.uid,
        version=record.version,
        sequence=logged.sequence,
        is_deleting=_deletion.decode(record.body).metadata.deletion_timestamp is not None,
        body=record.body,
    )


def index_entries(index: BoundIndex, body: bytes, held: Iterable[Entry], name: str) -> list[Entry]:
    """Entries of one object in one index.

    If the object cannot be decoded, the function raises, or it gives what cannot be a key or a value, the entries held
    so far stay, marked with the error. Where there are none, one under the key ERRORS says what the index lacks.
    """
    try:
        entries: list[Entry] = []
        ordinals: dict[str, int] = {}
        for key, value in index.handler.entries(body):
            text = canonical_key(key)
            ordinal = ordinals.get(text, 0)
            ordinals[text] = ordinal + 1
            if ordinal == MAX_ENTRIES:
                raise ValueError(f"more than {MAX_ENTRIES} entries under the key {text[:60]}")  # noqa: TRY301 - one handling
            entries.append(Entry(index.name, text, ordinal, canonical(value)))
    except Exception as error:  # noqa: BLE001 - a user's function may raise anything; only this object's entries are concerned
        message = _message(error)
        kept = [
            Entry(e.index, e.key, e.ordinal, e.value, message)
            for e in held
            if e.index == index.name and e.key != ERRORS
        ]
        effect = "keeps its entries" if kept else "is left out"
        log.warning("index %s: %s %s: %s", index.name, name, effect, message, extra={"object": name})
        return kept or [Entry(index.name, ERRORS, 0, canonical({"object": name, "error": message}), message)]
    return entries


def _message(error: Exception) -> str:
    """What an error says, as text that any database takes."""
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - an exception of the user's own may raise anything here too
        words = "(its message cannot be read)"
    message = f"{type(error).__name__}: {words}"
    return message[:MAX_MESSAGE].replace("\0", "\\0").encode(errors="backslashreplace").decode()


def canonical_key(key: object) -> str:
    """Text of an index key: JSON scalars and tuples of them.

    Raises TypeError for another kind of key, ValueError for one over 1,024 bytes.
    """
    _require_scalars(key)
    text = canonical(key)
    if len(text) > MAX_KEY_BYTES:
        raise ValueError(f"key of {len(text)} bytes; {MAX_KEY_BYTES} are allowed: {text[:60].decode()}…")
    return text.decode()


def _require_scalars(key: object) -> None:
    if isinstance(key, tuple):
        for part in key:  # pyright: ignore[reportUnknownVariableType]
            _require_scalars(part)
    elif key is not None and not isinstance(key, str | int | float | bool):
        raise TypeError(
            f"key {key!r} is a {type(key).__name__}; keys are strings, numbers, booleans, None and tuples of them"
        )


def parent_inputs(view: BoundView, body: bytes, looked_at: bytes | None) -> str | None:
    """Identity of what a view sees of a parent; None if the view's filters leave it out.

    `looked_at` is where the view looked when it was evaluated last, if it takes plain objects. A parent that cannot be
    decoded, or for which a filter raises, has an identity too, that of the error, so that it is evaluated and shown.
    """
    try:
        return view.handler.reader.inputs(body, looked_at)
    except Exception as error:  # noqa: BLE001 - a filter is the user's and may raise anything; only this level is concerned
        return digest("unreadable", type(error).__name__, str(error))
