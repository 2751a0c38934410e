"""The fold: from a batch of records, and what was there before, to everything that they change.

It does no I/O: it reads what it is given, and returns `Changes`, which State takes. It wakes the levels of changed
parents, receipts and observations; those that read a changed key, State finds. It calls users' index functions, whose
errors are kept as entries and logged, and filters, whose errors wake the level. Live processors, history, replay and
`levelog.testing` all fold with it, so that they agree.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from levelog_base.wire.objects import ObjectKey, is_newer
from levelog_base.wire.records import (
    BookmarkNoted,
    ContactLost,
    GapNoted,
    HistoryReverted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    ObjectUnreadable,
    ReceiptNoted,
    SyncFinished,
    SyncStarted,
    TargetObserved,
    Unreadable,
    api_version_of,
    follows,
    is_unlisted,
    swept_version,
)
from levelog_processors.bound import BoundIndex, BoundView
from levelog_processors.fold.entries import change_key, index_entries, is_expired, note_time, replace_entries, unexpired
from levelog_processors.fold.foldedobjects import Latest, deleted, place_of, stored, unreadable
from levelog_processors.fold.lists import finish, note_mark, note_sync
from levelog_processors.fold.receipts import Receipts
from levelog_processors.guard import parent_inputs
from levelog_processors.keys import calls_key
from levelog_processors.program import Program
from levelog_store.fold.changes import Changes, Checkpoint, EndedObject, PriorState, Replaced, Wake
from levelog_store.rows import Entry, Input, StoredObject, SyncRow, Tombstone, UnreadableRow


class Fold:
    """Folds a part of a batch, in the order of the log, on top of what State holds of its objects; used once.

    A record is compared with what is held of its object (`_see`); the newest record of each object becomes its row
    (`_change_object`), which gives entries, and wakes the object's levels. Receipts and observations wake their levels.
    Calls for ended incarnations are forgotten.
    """

    def __init__(self, program: Program, application: str, prior: PriorState) -> None:
        self._program = program
        self._application = application
        self._prior = prior
        self._times = dict(prior.times)
        self._changes = Changes()
        self._latest: dict[str, Latest] = {}
        """By object."""
        self._receipts = Receipts(program, self._changes, prior, self._latest)

    def records(self, records: Sequence[LoggedRecord]) -> Changes:
        """Fold records of any kind but `SyncFinished`; `HistoryReverted` and `SyncStarted` not after objects."""
        for logged in records:
            self._advance(logged)
            self._take(logged)
        for name, last in self._latest.items():
            self._change_object(name, last)
        self._receipts.remember()
        self._expire()
        return self._changes

    def sweep(self, records: Sequence[LoggedRecord], held: Callable[[Input], Iterable[StoredObject]]) -> Changes:
        """Fold `SyncFinished` records: objects `held` of a partition and resource that the list left out are deleted.

        Where a view handles deletions, the last body held is kept. No late record up to the list's version revives
        them; in a namespace that is watched no more, the version held may come back, and older ones may not. Lists of
        two ingesters interleave; each counts by itself.
        """
        for logged in records:
            self._advance(logged)
            record = logged.record
            if not isinstance(record, SyncFinished):
                raise TypeError(f"a sweep takes finished lists, not {type(record).__name__}")
            place: Input = (logged.partition, str(record.resource))
            before = self._changes.syncs.get(place) or self._prior.syncs.get(place)
            begun = before.begun.get(record.sync_id) if before is not None else None
            if before is None or begun is None:
                continue  # its beginning is not in the log any more, or its end was told before
            views = [view.name for view in self._program.views_of(str(record.resource))]
            self._changes.listed.append((logged.partition, views))
            note_sync(self._changes, before, finish(before, record, logged.sequence), logged.sequence)
            for row in held(place):
                if is_unlisted(
                    record, begun=begun, sequence=row.sequence, version=row.version, namespace=row.namespace
                ):
                    self._sweep(row, record, logged)
        self._expire()
        return self._changes

    def _sweep(self, row: StoredObject, record: SyncFinished, logged: LoggedRecord) -> None:
        if handling := self._program.views_of_deleted(row.resource):
            self._keep_ended(row.object, row.uid, None, logged, handling)
        tombstone = Tombstone(
            object=row.object,
            partition=row.partition,
            uid=row.uid,
            version=swept_version(record, version=row.version, namespace=row.namespace),
            sequence=logged.sequence,
        )
        self._bury(row.resource, tombstone)

    def index_anew(self, index: BoundIndex, rows: Iterable[StoredObject], sequence: int) -> Changes:
        """Replace the entries of stored objects in an index whose code has changed.

        Entries of the older code are deleted even if the function raises: their keys may mean something else.
        `sequence` counts as the record that changed the keys. The prior state must have entries of that index alone:
        all others would be removed.
        """
        for row in rows:
            fresh = index_entries(index, row.body, (), row.object, row.recorded_at)
            fresh = unexpired(fresh, self._times.get(row.partition))
            self._replace_entries(row.object, row.partition, fresh, sequence)
        return self._changes

    def leave_out(self, view: BoundView, row: StoredObject, sequence: int) -> Changes:
        """Drop or wake the level of a stored parent, as the view's filter, which has changed, says."""
        self._wake_or_drop_level(view, row.object, row.uid, row.body, Wake(row.partition, (sequence,)))
        return self._changes

    def _advance(self, logged: LoggedRecord) -> None:
        note_time(self._times, logged)
        self._changes.checkpoints[logged.partition] = Checkpoint(
            logged.sequence, logged.sequence, logged.record_id, self._times.get(logged.partition)
        )

    def _expire(self) -> None:
        """Remove entries whose time is over, of objects that the batch does not change."""
        touched = self._changes.touched()
        for name, entry in self._prior.expired:
            row = self._prior.objects.get(name)
            point = self._changes.checkpoints.get(row.partition) if row is not None else None
            if row is None or point is None or name in touched:
                continue
            if is_expired(entry, self._times.get(row.partition)):
                self._changes.entries[entry.index, entry.key, name, entry.ordinal] = None
                change_key(self._changes, entry, row.partition, point.sequence, (point.sequence,))

    def _take(self, logged: LoggedRecord) -> None:
        record = logged.record
        match record:
            case ObjectSeen() | ObjectDeleted():
                self._see(logged, str(record.key), record)
            case HistoryReverted() | SyncStarted():
                self._begin(logged, record, note_mark(self._changes, self._prior.syncs, logged, record))
            case GapNoted() | BookmarkNoted() | ContactLost():
                note_mark(self._changes, self._prior.syncs, logged, record)
            case ReceiptNoted():
                if record.application == self._application:
                    self._receipts.note(logged, record)
            case TargetObserved():
                if record.application == self._application:
                    self._receipts.observe(logged, record)
            case Unreadable() | ObjectUnreadable():
                self._skip(logged, place_of(record), record.error)
            case SyncFinished():
                raise TypeError("a finished list is folded by Fold.sweep")

    def _begin(self, logged: LoggedRecord, record: HistoryReverted | SyncStarted, before: SyncRow | None) -> None:
        """Note, if history went back or a list in a newer API version began, that State has to block the views."""
        resource = str(record.resource)
        if isinstance(record, HistoryReverted):
            reason = f"the history of {resource} went back, as after a restore of etcd: it has not been listed since"
        elif before is not None and is_newer(record.api_version, before.api_version):
            reason = (
                f"{resource} is recorded in version {record.api_version}: waits for its list, and code that declares it"
            )
        else:
            return
        if self._latest:
            raise TypeError("what replaces all that is held is folded by itself")
        views = tuple(view.name for view in self._program.views.values() if resource in view.reads)
        is_other_history = isinstance(record, HistoryReverted)
        self._changes.replaced.append(
            Replaced(logged.partition, resource, views, logged.sequence, reason, is_other_history)
        )

    def _see(self, logged: LoggedRecord, name: str, record: ObjectSeen | ObjectDeleted) -> None:
        """Keep what a record says of an object if it is news, can be read, and is in the newest API version."""
        if not self._is_news(name, record):
            if isinstance(record, ObjectSeen):
                self._see_again(logged, name, record)
        elif error := unreadable(record):
            self._skip(logged, name, error)
        elif not self._is_in_older_version(logged.partition, record):
            now = self._times.get(logged.partition)
            self._latest[name] = Latest(record, logged, now, logged.sequence, self._latest.get(name))

    def _is_in_older_version(self, partition: int, record: ObjectSeen | ObjectDeleted) -> bool:
        """Tell whether a record is in an older API version than the resource is recorded in."""
        known = self._prior.api_versions.get((partition, str(record.key.group_resource)), "")
        return bool(known) and is_newer(known, api_version_of(record))

    def _is_news(self, name: str, record: ObjectSeen | ObjectDeleted) -> bool:
        """Tell whether the record is newer than what is held of the object."""
        if earlier := self._latest.get(name):
            return follows(record, earlier.record.uid, earlier.record.version, is_gone=earlier.is_deletion)
        if prior := self._prior.objects.get(name):
            return follows(record, prior.uid, prior.version, is_gone=False)
        if tombstone := self._prior.tombstones.get(name):
            return follows(record, tombstone.uid, tombstone.version, is_gone=True)
        return True

    def _see_again(self, logged: LoggedRecord, name: str, record: ObjectSeen) -> None:
        """Note that a record repeats the very version that is known, as a list does."""
        latest = self._latest.get(name)
        known = latest.record if latest is not None else self._prior.objects.get(name)
        if known is not None and (known.uid, known.version) == (record.uid, record.version):
            self._show_again(logged, name)

    def _show_again(self, logged: LoggedRecord, name: str) -> None:
        """Note that an object was there, as it was: the list that the record belongs to does not sweep it."""
        known = self._latest.get(name)
        if known is None:
            if name in self._prior.objects:
                self._changes.seen_again[name] = logged.sequence
        elif not known.is_deletion:
            known.logged = logged

    def _skip(self, logged: LoggedRecord, place: str, error: str) -> None:
        """Leave out a record that cannot be read, and note so; the list that it is of does not sweep its object."""
        self._changes.unreadable[logged.partition, place] = UnreadableRow(
            partition=logged.partition,
            place=place.replace("\0", ""),
            sequence=logged.sequence,
            error=error.replace("\0", ""),
            recorded_at=logged.record.time,
        )
        self._show_again(logged, place)

    def _change_object(self, name: str, last: Latest) -> None:
        """Make an object what its newest record says, with its entries, and wake the levels that see it as a parent."""
        record, logged, causes = last.record, last.logged, last.causes
        self._changes.seen_again.pop(name, None)
        if causes != (logged.sequence,):
            self._changes.records_of[name] = causes
        resource = str(record.key.group_resource)
        if handling := self._program.views_of_deleted(resource):
            self._keep_deleted(name, last, handling)
        if isinstance(record, ObjectDeleted):
            tombstone = Tombstone(
                object=name,
                partition=logged.partition,
                uid=record.uid,
                version=record.version,
                sequence=logged.sequence,
            )
            self._bury(resource, tombstone)
            return
        self._changes.objects[name] = stored(name, record, logged)
        if name in self._prior.tombstones:
            self._changes.tombstones_lifted.add(name)
        before = self._prior.objects.get(name)
        views = self._program.views_of(resource)
        if before is not None and before.uid != record.uid:
            self._drop_levels(views, name, last.sequence)
        story = last.story() if last.before is not None else ()
        ended = {each.record.uid for each in story} | ({before.uid} if before is not None else set())
        if ended := ended - {record.uid}:
            self._change_keys_of_calls(views, sorted(ended), logged)
        if any(each.is_deletion for each in story):
            self._changes.calls_forgotten[name] = ()  # all of them
        elif ended:
            self._changes.calls_forgotten[name] = ended
        indices = self._program.indices_of(resource)
        if indices:
            fresh = [
                e
                for index in indices
                for e in index_entries(index, record.body, self._entries_before(index, name, last), name, record.time)
            ]
            fresh = unexpired(fresh, self._times.get(logged.partition))
            self._replace_entries(name, logged.partition, fresh, last.sequence)
        for view in views:
            self._wake_or_drop_level(view, name, record.uid, record.body, Wake(logged.partition, causes))

    def _keep_deleted(self, name: str, last: Latest, handling: Sequence[BoundView]) -> None:
        """Keep the incarnations of an object that ended in the batch, for the handlers of their deletion."""
        prior = self._prior.objects.get(name)
        living, shown = (prior.uid if prior else ""), None
        for each in last.story():
            if living and living != each.record.uid:  # nobody saw it end
                self._keep_ended(name, living, shown, each.logged, handling)
            if each.is_deletion:
                is_readable = deleted(each.record, each.logged) is not None
                self._keep_ended(name, each.record.uid, each if is_readable else shown, each.logged, handling)
            living, shown = ("", None) if each.is_deletion else (each.record.uid, each)

    def _keep_ended(
        self, name: str, uid: str, shown: Latest | None, logged: LoggedRecord, handling: Sequence[BoundView]
    ) -> None:
        """Keep a deleted object under a key of its own, in its last known state: from a record, or the stored row."""
        row = deleted(shown.record, shown.logged) if shown is not None else None
        key = ObjectKey.parse(name).deleted(uid)
        if row is not None:
            self._changes.objects[row.object] = row
        else:
            self._changes.deletions.append(EndedObject(name, uid, key))
        for view in handling:
            self._changes.wake((view.name, str(key)), Wake(logged.partition, (logged.sequence,)))

    def _entries_before(self, index: BoundIndex, name: str, last: Latest) -> Iterator[Entry]:
        """Entries that an object had in an index before a record; a generator, as only a failure asks for them.

        They are what folding each record by itself would have left, however the records fell into batches.
        """
        earlier: list[Latest] = []
        each = last.before
        while each is not None and isinstance(each.record, ObjectSeen) and each.record.uid == last.record.uid:
            earlier.append(each)
            each = each.before
        prior = self._prior.objects.get(name)
        entries: Iterable[Entry] = ()
        if each is None and prior is not None and prior.uid == last.record.uid:
            entries = self._prior.entries_of(name)
        for older in reversed(earlier):
            record = older.record
            entries = index_entries(index, record.body, unexpired(entries, older.now), name, record.time)
        yield from unexpired(entries, last.now)

    def _bury(self, resource: str, tombstone: Tombstone) -> None:
        name = tombstone.object
        self._changes.tombstones[name] = tombstone
        self._replace_entries(name, tombstone.partition, (), tombstone.sequence)
        views = self._program.views_of(resource)
        self._drop_levels(views, name, tombstone.sequence)
        self._change_keys_of_calls(views, [tombstone.uid], tombstone)
        self._changes.calls_forgotten[name] = ()

    def _drop_levels(self, views: Iterable[BoundView], name: str, sequence: int) -> None:
        """Drop levels because of a record, which changes the keys under which they are looked up."""
        for view in views:
            self._changes.gone.add((view.name, name))
            for place in self._program.places_of(view.name, name):
                self._changes.change_key(place, sequence, (sequence,))

    def _change_keys_of_calls(
        self, views: Iterable[BoundView], uids: Iterable[str], by: LoggedRecord | Tombstone
    ) -> None:
        """Change the keys under which calls for these incarnations are; State forgets the calls."""
        operators = {view.operator for view in views}
        for name in sorted(self._program.effects.keys() - self._program.handled_deletions):
            if name.partition("/")[0] in operators:
                for uid in uids:
                    gone = Entry(name, calls_key(uid), 0, b"")
                    change_key(self._changes, gone, by.partition, by.sequence, (by.sequence,))

    def _replace_entries(self, name: str, partition: int, fresh: Iterable[Entry], sequence: int) -> None:
        replace_entries(self._changes, self._prior.entries_of(name), fresh, name, partition, sequence)

    def _wake_or_drop_level(self, view: BoundView, name: str, uid: str, body: bytes, wake: Wake) -> None:
        prior = self._prior.levels.get((view.name, name))
        inputs = parent_inputs(view, body, prior.fields_read if prior else None)
        if inputs is None:
            if prior is not None or name not in self._prior.objects:  # after `reset_scope` levels are without objects
                self._drop_levels([view], name, wake.cause)
                self._wake_readers(view, name, body, wake)
            self._changes.wakes.pop((view.name, name), None)
        elif prior is None or (prior.parent_uid, prior.inputs) != (uid, inputs):
            self._changes.wake((view.name, name), wake)

    def _wake_readers(self, left_out: BoundView, name: str, body: bytes, wake: Wake) -> None:
        """Wake the views that were given the level of a parent which its view leaves out now."""
        for reader in map(self._program.views.__getitem__, self._program.readers.get(left_out.name, ())):
            prior = self._prior.levels.get((reader.name, name))
            if parent_inputs(reader, body, prior.fields_read if prior else None) is not None:
                self._changes.wake((reader.name, name), wake)
