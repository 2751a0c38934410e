"""The fold: records and what the tables hold of their objects give the changes to make. No I/O here.

Live processors, replay and `levelog.testing` all run this one function, so that they agree.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from levelog.calls.faults import described
from levelog.wire.canonical import digest
from levelog.wire.records import (
    BookmarkNoted,
    ContactLost,
    GapNoted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    ObjectUnreadable,
    ReceiptNoted,
    SyncFinished,
    SyncStarted,
    TargetSighted,
    Unreadable,
    follows,
    swept_version,
)
from levelog_processors.fence.calls import filtered
from levelog_processors.fold.entries import WHOLE_INDEX, LogTime, index_entries, is_expired, unexpired
from levelog_processors.fold.lists import begin, finish, note_sync
from levelog_processors.fold.objects import Latest, is_deletion, place_of, stored, unreadable
from levelog_processors.fold.receipts import Memory, calls_key, folded_receipt, memory_of
from levelog_processors.program import BoundIndex, BoundView, Program
from levelog_store.fold.changes import Changes, Checkpoint, FoldedSighting, Held, Wake
from levelog_store.rows import ERRORS, Entry, Input, StoredObject, SyncRow, Tombstone, UnreadableRow

log = logging.getLogger(__name__)


class Fold:
    """Folds one batch, in the order of the log, on top of what is held of its objects."""

    def __init__(
        self, program: Program, application: str, held: Held, *, thinned: Collection[str] = frozenset[str]()
    ) -> None:
        """`thinned` are objects of which the batch has the newest record of an incarnation, and lacks older ones."""
        self._program = program
        self._application = application
        self._held = held
        self._thinned = thinned
        self._time = LogTime(held.times)
        self._changes = Changes()
        self._memories: dict[tuple[str, str, str], tuple[Memory, LoggedRecord]] = {}

    def records(self, records: Sequence[LoggedRecord]) -> Changes:
        """Fold records of any kind but `SyncFinished`."""
        latest: dict[str, Latest] = {}
        for logged in records:
            self._advance(logged)
            record = logged.record
            match record:
                case ObjectSeen() | ObjectDeleted():
                    name = str(record.key)
                    if self._is_news(name, record, latest.get(name)):
                        before = latest.get(name)
                        if error := unreadable(record):
                            self._note_unreadable(logged, name, error, before)
                            if name in self._thinned:
                                self._changes.lacking.add(name)
                        else:
                            now = self._time.of(logged.partition)
                            causes = before.causes if before is not None else ()
                            latest[name] = Latest(record, logged, now, (*causes, logged.sequence), before)
                    elif isinstance(record, ObjectSeen):
                        self._see_again(name, record, logged, latest.get(name))
                case SyncStarted() | GapNoted() | BookmarkNoted() | ContactLost():
                    self._note_mark(logged, record)
                case ReceiptNoted():
                    if record.application == self._application:
                        self._note_receipt(logged, record)
                case TargetSighted():
                    if record.application == self._application:
                        self._note_sighting(logged, record)
                case Unreadable() | ObjectUnreadable():
                    name = place_of(record)
                    self._note_unreadable(logged, name, record.error, latest.get(name))
                case SyncFinished():
                    raise TypeError("a finished list is folded by Fold.sweep")
        for name, last in latest.items():
            self._changes.seen_again.pop(name, None)
            if len(last.causes) > 1:
                self._changes.told[name] = last.causes
            self._settle_object(name, last)
        self._remember()
        self._expire()
        return self._changes

    def sweep(
        self,
        records: Sequence[LoggedRecord],
        started: Mapping[Input, SyncRow],
        unlisted: Sequence[tuple[StoredObject, int]],
    ) -> Changes:
        """Fold `SyncFinished` records.

        `started` are the lists under way, by partition and resource; `unlisted` the objects that a finished list left
        out, with the sequence of its record. They are deleted with the last body held of them, and a late record up to
        the list's version does not revive them. Lists of two ingesters interleave; each counts by itself.
        """
        finished: dict[int, SyncFinished] = {}
        for logged in records:
            self._advance(logged)
            record = logged.record
            if not isinstance(record, SyncFinished):
                raise TypeError(f"a sweep takes finished lists, not {type(record).__name__}")
            place: Input = (logged.partition, str(record.resource))
            before = self._changes.syncs.get(place) or started.get(place)
            if before is None or before.begun(record.sync_id) is None:
                continue  # its beginning is not in the log any more
            finished[logged.sequence] = record
            views = [view.name for view in self._program.views_of(str(record.resource))]
            self._changes.listed.append((logged.partition, views))
            after = finish(before, record, logged.sequence)
            note_sync(self._changes, before, after, logged.sequence)
        for row, sequence in unlisted:
            record = finished[sequence]
            tombstone = Tombstone(
                object=row.object,
                partition=row.partition,
                uid=row.uid,
                version=swept_version(record, version=row.version, namespace=row.namespace),
                sequence=sequence,
                deleted_at=record.time,
            )
            self._bury(row.resource, tombstone)
        self._expire()
        return self._changes

    def index_anew(self, index: BoundIndex, rows: Iterable[StoredObject], sequence: int) -> Changes:
        """Replace the entries of stored objects in an index whose code has changed.

        What the older code gave is not kept, even if the function raises: its keys may mean something else. `sequence`
        stands for the record that changed the keys. What is held has to be the objects' entries in that index alone.
        """
        for row in rows:
            fresh = index_entries(index, row.body, (), row.object, row.recorded_at)
            fresh = unexpired(fresh, self._time.of(row.partition))
            self._replace_entries(row.object, row.partition, fresh, sequence)
        return self._changes

    def wake_anew(self, view: BoundView, rows: Iterable[StoredObject], sequence: int) -> Changes:
        """Wake the stored parents of a view whose code has changed, but for those evaluated by the new code already."""
        for row in rows:
            self._wake_parent(view, row.object, row.uid, row.body, Wake(row.partition, (sequence,)))
        return self._changes

    def _advance(self, logged: LoggedRecord) -> None:
        self._time.note(logged)
        self._changes.checkpoints[logged.partition] = Checkpoint(
            logged.sequence, logged.sequence, logged.record_id, self._time.of(logged.partition)
        )

    def _expire(self) -> None:
        """Remove entries whose time is over, of objects that the batch does not change."""
        touched = self._changes.touched()
        for each in self._held.expired:
            if each.object not in touched and is_expired(each.entry, self._time.of(each.partition)):
                entry = each.entry
                self._changes.entries_removed.append((entry.index, entry.key, each.object, entry.ordinal))
                sequence = self._changes.checkpoints[each.partition].sequence
                self._change_key(entry, each.partition, sequence, (sequence,))

    def _is_news(self, name: str, record: ObjectSeen | ObjectDeleted, earlier: Latest | None) -> bool:
        """Tell whether the record is newer than what is known, so that no state ever goes back."""
        if earlier is not None:
            return follows(record, earlier.record.uid, earlier.record.version, is_gone=is_deletion(earlier.record))
        if held := self._held.objects.get(name):
            return follows(record, held.uid, held.version, is_gone=False)
        if tombstone := self._held.tombstones.get(name):
            return follows(record, tombstone.uid, tombstone.version, is_gone=True)
        return True

    def _see_again(self, name: str, record: ObjectSeen, logged: LoggedRecord, earlier: Latest | None) -> None:
        """Note that a record repeats the very version that is held, as a list does."""
        held = self._held.objects.get(name)
        if earlier is not None:
            is_same = (earlier.record.uid, earlier.record.version) == (record.uid, record.version)
            if is_same and not is_deletion(earlier.record):
                earlier.logged = logged
        elif held is not None and (held.uid, held.version) == (record.uid, record.version):
            self._changes.seen_again[name] = logged.sequence

    def _note_unreadable(self, logged: LoggedRecord, place: str, error: str, earlier: Latest | None) -> None:
        """Skip a record, and say so. The object that it is of does exist, as it was: a list does not sweep it."""
        log.error("record %d of %s cannot be read and is skipped: %s", logged.sequence, place, error)
        self._changes.unreadable[logged.partition, place] = UnreadableRow(
            partition=logged.partition,
            place=place.replace("\0", ""),
            sequence=logged.sequence,
            error=error.replace("\0", ""),
            recorded_at=logged.record.time,
        )
        if earlier is not None:
            if not is_deletion(earlier.record):
                earlier.logged = logged
        elif place in self._held.objects:
            self._changes.seen_again[place] = logged.sequence

    def _note_mark(self, logged: LoggedRecord, record: SyncStarted | GapNoted | BookmarkNoted | ContactLost) -> None:
        place: Input = (logged.partition, str(record.resource))
        before = self._changes.syncs.get(place) or self._held.syncs.get(place)
        after = before or SyncRow(partition=logged.partition, resource=str(record.resource))
        match record:
            case SyncStarted():
                after = begin(after, record, logged.sequence)
            case GapNoted():
                after = replace(after, gap_sequence=logged.sequence)
            case BookmarkNoted():
                after = replace(after, heard_at=record.time, error="")
            case ContactLost():
                after = replace(after, error=record.error)
        note_sync(self._changes, before, after, logged.sequence)

    def _settle_object(self, name: str, last: Latest) -> None:
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
        self._changes.objects[name] = stored(name, record, logged)
        if name in self._held.tombstones:
            self._changes.tombstones_lifted.add(name)
        before = self._held.objects.get(name)
        views = self._program.views_of(resource)
        if before is not None and before.uid != record.uid:
            self._changes.gone.update((view.name, name) for view in views)
        indices = self._program.indices_of(resource)
        if indices:
            fresh = [
                e
                for index in indices
                for e in index_entries(index, record.body, self._kept(index, name, last), name, record.time)
            ]
            fresh = unexpired(fresh, self._time.of(logged.partition))
            self._replace_entries(name, logged.partition, fresh, logged.sequence)
        for view in views:
            self._wake_parent(view, name, record.uid, record.body, Wake(logged.partition, last.causes))

    def _kept(self, index: BoundIndex, name: str, last: Latest) -> Iterator[Entry]:
        """Entries that an object had in an index before a record; found out only where the function raises for it.

        They are what folding each record by itself would have left, however the records fell into batches.
        """
        if name in self._thinned:
            self._changes.lacking.add(name)
        earlier: list[Latest] = []
        each = last.before
        while each is not None and isinstance(each.record, ObjectSeen) and each.record.uid == last.record.uid:
            earlier.append(each)
            each = each.before
        held = self._held.objects.get(name)
        entries: Iterable[Entry] = ()
        if each is None and held is not None and held.uid == last.record.uid:
            entries = self._held.entries.get(name, ())
        for older in reversed(earlier):
            record = older.record
            entries = index_entries(index, record.body, unexpired(entries, older.now), name, record.time)
        yield from unexpired(entries, last.now)

    def _bury(self, resource: str, tombstone: Tombstone) -> None:
        name = tombstone.object
        self._changes.tombstones[name] = tombstone
        self._replace_entries(name, tombstone.partition, (), tombstone.sequence)
        views = self._program.views_of(resource)
        self._changes.gone.update((view.name, name) for view in views)
        if operators := {view.operator for view in views}:
            self._forget_calls(operators, tombstone)

    def _forget_calls(self, operators: Collection[str], parent: Tombstone) -> None:
        """Remove what effects did for a parent that is gone."""
        effects = [name for name in self._program.effects if name.partition("/")[0] in operators]
        if effects:
            self._changes.calls_forgotten.append(parent.object)
        for name in effects:
            gone = Entry(name, calls_key(parent.uid), 0, b"")
            self._change_key(gone, parent.partition, parent.sequence, (parent.sequence,))

    def _replace_entries(self, name: str, partition: int, fresh: Iterable[Entry], sequence: int) -> None:
        old = {(e.index, e.key, e.ordinal): e for e in self._held.entries.get(name, ())}
        new = {(e.index, e.key, e.ordinal): e for e in fresh}
        causes = self._changes.told.get(name, (sequence,))
        for place, entry in old.items():
            if place not in new:
                self._changes.entries_removed.append((entry.index, entry.key, name, entry.ordinal))
                self._change_key(entry, partition, sequence, causes)
        for place, entry in new.items():
            before = old.get(place)
            if before != entry:
                self._changes.entries_written.append((name, entry))
            if before is None or before.value != entry.value:  # an error alone is nothing that a view sees
                self._change_key(entry, partition, sequence, causes)

    def _change_key(self, entry: Entry, partition: int, sequence: int, causes: Sequence[int]) -> None:
        self._changes.change_key((entry.index, entry.key), sequence, causes)
        if entry.key != ERRORS:
            self._changes.change_key((entry.index, f"{WHOLE_INDEX}{partition}"), sequence, causes)

    def _wake_parent(self, view: BoundView, name: str, uid: str, body: bytes, wake: Wake) -> None:
        held = self._held.levels.get((view.name, name))
        inputs = parent_inputs(view, body, held.looked_at if held else None)
        if inputs is None:
            self._changes.gone.add((view.name, name))
        elif held is None or (held.parent_uid, held.inputs) != (uid, inputs):
            self._changes.wake((view.name, name), wake)

    def _note_receipt(self, logged: LoggedRecord, record: ReceiptNoted) -> None:
        parent = str(record.parent)
        has_view = record.view in self._program.views  # the code may have changed since
        self._changes.receipts.append(folded_receipt(record, logged, has_view=has_view))
        if has_view and record.verb != "event":
            self._changes.wake((record.view, parent), Wake(logged.partition, (logged.sequence,)))
        memory = memory_of(record)
        if memory is not None and memory.index in self._program.indices:
            self._memories[memory.index, memory.key, memory.object] = memory, logged

    def _note_sighting(self, logged: LoggedRecord, record: TargetSighted) -> None:
        """Note what the API had of a target; the level that waits for it says so, or goes on."""
        self._changes.sightings.append(FoldedSighting(key=record.key, version=record.target_version, at=record.time))
        if record.view in self._program.views:
            self._changes.wake((record.view, str(record.parent)), Wake(logged.partition, (logged.sequence,)))

    def _remember(self) -> None:
        """Write what the last receipt of each target says of it."""
        for (index, key, name), (memory, logged) in self._memories.items():
            if memory.entry is None:
                self._changes.entries_removed.append((index, key, name, 0))
            else:
                self._changes.entries_written.append((name, memory.entry))
            at = logged.sequence
            self._change_key(memory.entry or Entry(index, key, 0, b""), logged.partition, at, (at,))


def parent_inputs(view: BoundView, body: bytes, looked_at: bytes | None) -> str | None:
    """Identity of what a view sees of a parent; None if the view's filters leave it out.

    `looked_at` is where the view looked when it was evaluated last, if it takes plain objects. A parent that cannot be
    decoded, or for which a filter raises, has an identity too, that of the error, so that it is evaluated and shown.
    """
    try:
        return filtered(view, lambda: view.handler.reader.inputs(body, looked_at))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a filter is the user's and may raise anything; only this level is concerned
        return digest("unreadable", described(error))
