"""What the log shows, in memory: objects, entries of indices, who read which key, and what is to be decided on."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from levelog.handlers.indexers import applied_place
from levelog.indices import Contact
from levelog.wire.objects import ObjectKey
from levelog.wire.records import LoggedRecord, SyncFinished
from levelog_processors.fold.entries import note_time
from levelog_processors.fold.receipts import levels_of_calls
from levelog_processors.fold.rules import Fold
from levelog_processors.program import Program
from levelog_processors.state.buckets import Buckets
from levelog_processors.state.wakes import Wakes
from levelog_store.decide.decisions import Decided
from levelog_store.fold.changes import Changes, ExpiredEntry, FoldedReceipt, Held, Replaced, Unlisted, Wake, merge_wake
from levelog_store.fold.ends import Ends
from levelog_store.rows import (
    Entry,
    IndexKey,
    Input,
    LevelRow,
    StoredObject,
    SyncRow,
    Tombstone,
    UnreadableRow,
    ViewParent,
)


class State:
    """The fold of all partitions up to a position, and the levels that rest on it. No I/O.

    `fold` gives the changes of one part of a batch; nothing has changed before they are passed to `apply`, so that
    whatever else they lead to can be committed first. `take` does the same with decisions.
    """

    def __init__(self, program: Program, application: str, partitions: int) -> None:
        self.program = program
        self.application = application
        self.partitions = partitions
        self.objects: dict[str, StoredObject] = {}
        self.tombstones: dict[str, Tombstone] = {}
        self.unreadable: dict[tuple[int, str], UnreadableRow] = {}
        """Records that were skipped, by partition and place."""
        self.syncs: dict[Input, SyncRow] = {}
        self.api_versions: dict[Input, str] = {}
        """In which each resource is recorded; not there: nobody says."""
        self.folded_to = dict.fromkeys(range(partitions), 0)
        """Sequence up to which each partition is folded."""
        self.times: dict[int, datetime] = {}
        """The log's time in each partition."""
        self.buckets = Buckets()
        self.levels: dict[ViewParent, LevelRow] = {}
        self.wakes = Wakes()
        self.reads: dict[ViewParent, frozenset[IndexKey]] = {}
        """Keys that each level read when it was evaluated last."""
        self.readers: dict[IndexKey, set[ViewParent]] = {}
        self.awaited: dict[str, dict[str, tuple[ViewParent, int]]] = {}
        """Writes under way, by target and key: the level that waits, and its partition."""
        self._targets: dict[str, str] = {}
        """Their targets, by key."""
        self._of_resource: dict[Input, set[str]] = {}
        """Names of objects."""
        self.ends = Ends()
        self._telling = 0

    # -- fold

    def fold(self, part: Sequence[LoggedRecord]) -> Changes:
        """What one of the `parts` of a batch changes, if its records are not folded yet."""
        held = self._held(part)
        if not isinstance(part[0].record, SyncFinished):
            return Fold(self.program, self.application, held).records(part)
        return Fold(self.program, self.application, held).sweep(part, self.syncs, list(self._unlisted(part)))

    def _held(self, part: Sequence[LoggedRecord]) -> Held:
        return Held(
            objects=self.objects,  # type: ignore[arg-type]
            tombstones=self.tombstones,  # type: ignore[arg-type]
            entries=_Entries(self.buckets),  # type: ignore[arg-type]
            levels=self.levels,  # type: ignore[arg-type]
            rounds={
                level: (row.parent_uid, row.round)
                for level in levels_of_calls(part)
                if (row := self.levels.get(level)) is not None
            },
            syncs=self.syncs,
            api_versions=self.api_versions,
            times=self.times if self.program.expires else {},
            expired=self._expired(part) if self.program.expires else [],
        )

    def _expired(self, part: Sequence[LoggedRecord]) -> list[ExpiredEntry]:
        times = dict(self.times)
        for logged in part:
            note_time(times, logged)
        if not times:
            return []
        partitions = {logged.partition for logged in part}
        found = self.buckets.expired(max(times.values()))
        rows = ((self.objects.get(name), name, entry) for name, entry in found)
        return [
            ExpiredEntry(n, row.partition, e) for row, n, e in rows if row is not None and row.partition in partitions
        ]

    def _unlisted(self, part: Sequence[LoggedRecord]) -> Iterator[tuple[Unlisted, int]]:
        """Objects that complete lists left out, with the sequence of the end of the list."""
        for logged in part:
            record = logged.record
            if not isinstance(record, SyncFinished):
                raise TypeError(f"a sweep takes finished lists, not {type(record).__name__}")
            place: Input = (logged.partition, str(record.resource))
            known = self.syncs.get(place)
            began = known.begun.get(record.sync_id) if known is not None else None
            if began is None or record.has_unnamed:
                continue
            for row in map(self.objects.__getitem__, sorted(self._of_resource.get(place, ()))):
                is_covered = not record.namespaces or row.namespace in record.namespaces
                if row.sequence < began and (row.version <= record.version or not is_covered):
                    kept = {name: getattr(row, name) for name in Unlisted.__struct_fields__}
                    yield Unlisted(**kept), logged.sequence

    def apply(self, changes: Changes) -> dict[ViewParent, Wake]:
        """Take the changes of a part; returns the levels that it wakes."""
        for partition, point in changes.checkpoints.items():
            self.folded_to[partition] = point.sequence
            if point.time is not None:
                self.times[partition] = max(point.time, self.times.get(partition, point.time))
        for ended in changes.deletions:
            self._keep_deleted(ended.object, ended.uid, ended.deleted)
        for row in changes.objects.values():
            self._put(row)
        for name, sequence in changes.seen_again.items():
            if name in self.objects:
                self.objects[name] = replace(self.objects[name], sequence=sequence)
        for name in changes.tombstones_lifted:
            self.tombstones.pop(name, None)
        for name in changes.tombstones:
            self._drop(name)
        self.tombstones |= changes.tombstones
        for index, key, name, ordinal in changes.entries_removed:
            self.buckets.remove(name, (index, key, ordinal))
        for name, entry in changes.entries_written:
            self.buckets.put(name, entry)
        for parent in changes.calls_forgotten:
            self._forget_calls(parent, changes.calls_kept)
        self.syncs |= changes.syncs
        self.api_versions |= {place: row.api_version for place, row in changes.syncs.items() if row.api_version}
        for each in changes.replaced:
            self._await_list(each)
        self.unreadable |= changes.unreadable
        self.buckets.versions |= changes.keys
        for level in {*changes.gone, *self._orphans(changes.listed)}:
            self.forget(level)
            held = self.objects.get(level[1])
            self.ends.gone[level] = held.uid if held is not None else ""
            self.ends.levels.pop(level, None)
        wakes = self._woken(changes)
        self._end(changes)
        self.ask(wakes)
        return wakes

    def _woken(self, changes: Changes) -> dict[ViewParent, Wake]:
        """Levels that records ask for: of their parents, of keys that they read, of targets that they have written."""
        wakes = Changes(wakes=dict(changes.wakes))
        for each in changes.replaced:
            for level, row in self.levels.items():
                if row.partition == each.partition and row.view in each.views:
                    wakes.wake(level, Wake(each.partition, (each.sequence,)))
        for place, version in changes.keys.items():
            causes = tuple(changes.changed_by.get(place, (version,)))
            for level in self.readers.get(place, ()):
                wakes.wake(level, Wake(self.levels[level].partition, causes))
        for target, sequences in changes.touched().items():
            for level, partition in self.awaited.get(target, {}).values():
                wakes.wake(level, Wake(partition, sequences))
        return wakes.wakes

    def _end(self, changes: Changes) -> None:
        """Note what ends by the records, to be told to SQL."""
        ends = self.ends
        ends.checkpoints |= changes.checkpoints
        ends.sightings += changes.sightings
        for each in changes.replaced:
            for level, known in self.levels.items():
                if known.partition == each.partition and known.view in each.views:
                    self.levels[level] = ends.levels[level] = unknown(known, each.reason)
            if each.is_other_history:
                ends.reverted.append((each.partition, each.resource))
        for receipt in changes.receipts:
            record, level = receipt.record, receipt.level
            row, parent = self.levels.get(level), self.objects.get(level[1])
            is_left = parent is None or parent.uid != record.parent_uid or (record.verb == "call" and row is None)
            state = "settled" if receipt.is_shown or (is_left and record.state == "written") else record.state
            ends.receipts.append((receipt, state))
            if state != "written":
                self.ended(record.key)
            if receipt.has_view and parent is not None and parent.uid == record.parent_uid:
                self._raise_round(level, parent, row, receipt)

    def _raise_round(self, level: ViewParent, parent: StoredObject, row: LevelRow | None, by: FoldedReceipt) -> None:
        """Rounds never fall below a receipt's, also where the level itself is still to be rebuilt from the log."""
        if row is None:
            self.ends.unmade[by.record.key] = LevelRow(
                view=level[0],
                parent=level[1],
                partition=parent.partition,
                parent_uid=parent.uid,
                status="blocked",
                reason="not evaluated since its history was folded again",
                round=by.record.round,
                cause=by.sequence,
            )
        elif row.parent_uid == parent.uid and row.round < by.record.round:
            self.levels[level] = self.ends.levels[level] = replace(row, round=by.record.round)

    def _orphans(self, listed: Iterable[tuple[int, Sequence[str]]]) -> set[ViewParent]:
        """Levels that outlived a loss of the log while their parents did not."""
        found = set[ViewParent]()
        for partition, views in listed:
            found |= {
                level
                for level, row in self.levels.items()
                if row.partition == partition and level[0] in views and level[1] not in self.objects
            }
        for _, parent in found:
            self._forget_calls(parent, frozenset())
        return found

    def _put(self, row: StoredObject) -> None:
        self.objects[row.object] = row
        self._of_resource.setdefault((row.partition, row.resource), set()).add(row.object)

    def _drop(self, name: str) -> None:
        row = self.objects.pop(name, None)
        if row is not None:
            self._of_resource[row.partition, row.resource].discard(name)

    def _keep_deleted(self, name: str, uid: str, deleted: ObjectKey) -> None:
        row = self.objects.get(name)
        if row is None or row.uid != uid or str(deleted) in self.objects:
            return
        resource = str(deleted.group_resource)
        self._put(replace(row, object=str(deleted), resource=resource, name=deleted.name, is_deleting=False))

    def _forget_calls(self, parent: str, kept: Collection[str]) -> None:
        for name in list(self.buckets.called.get(parent, ())):
            for entry in list(self.buckets.of(name)):
                if entry.index not in kept:
                    self.buckets.remove(name, (entry.index, entry.key, entry.ordinal))

    def _await_list(self, each: Replaced) -> None:
        """Let what is told next of a resource be newer than what is held of it."""
        for name in self._of_resource.get((each.partition, each.resource), ()):
            row = self.objects[name]
            self.objects[name] = replace(row, version=0 if each.is_other_history else row.version - 1)
        if each.is_other_history:
            of = (name for name, row in self.tombstones.items() if row.partition == each.partition)
            for name in [name for name in of if str(ObjectKey.parse(name).group_resource) == each.resource]:
                del self.tombstones[name]

    def contact(self, resource: str) -> Contact:
        """How far the watch of a resource can be trusted, as all partitions have seen it."""
        rows = [row for row in self.syncs.values() if row.resource == resource]
        listed = [row for row in rows if row.finished_sequence > 0]
        heard_at = max((row.heard_at for row in rows if row.heard_at is not None), default=None)
        return Contact(len(listed) < self.partitions or any(row.is_stale for row in listed), heard_at)

    # -- decide

    def take(self, decided: Decided) -> None:
        """Take a decision that is committed."""
        level, partition = decided.name, decided.wake.partition
        self.levels[level] = decided.level
        self._read(
            level, (self.reads.get(level, frozenset()) | decided.dependencies_added) - decided.dependencies_removed
        )
        for key in (*decided.settled, *decided.withdrawn):
            self.ended(key)
        for row in decided.intents:
            if row.state == "pending" and row.verb != "event":
                self.await_write(row.key, row.target, level, partition)
        self.wakes.conclude(decided)

    def await_write(self, key: str, target: str, level: ViewParent, partition: int) -> None:
        """Note that a level waits for a write."""
        self.awaited.setdefault(target, {})[key] = level, partition
        self._targets[key] = target

    def ask(self, wakes: Mapping[ViewParent, Wake]) -> None:
        """Note that levels are to be decided on, in an order that no hash seed changes."""
        for level, wake in sorted(wakes.items(), key=lambda each: (each[1].cause, each[0])):
            self.wakes.ask(level, wake)

    def ended(self, key: str) -> None:
        """Note that nothing waits for a write any more."""
        target = self._targets.pop(key, None)
        if target is None:
            return
        del self.awaited[target][key]
        if not self.awaited[target]:
            del self.awaited[target]

    def forget(self, level: ViewParent) -> None:
        """Forget a level, with what it read and was told."""
        self.levels.pop(level, None)
        self._read(level, frozenset())
        self.wakes.forget(level)
        self.buckets.remove_under(applied_place(*level))

    def tell(self, told: Mapping[IndexKey, tuple[int, ...]], wakes: dict[ViewParent, Wake]) -> None:
        """Add wakes for the levels that read keys of other levels, which stand otherwise by these records."""
        for place, causes in told.items():
            self._telling += 1
            self.buckets.versions[place] = self._telling
            for level in self.readers.get(place, ()):
                merge_wake(wakes, level, Wake(self.levels[level].partition, causes))

    def _read(self, level: ViewParent, keys: frozenset[IndexKey]) -> None:
        before = self.reads.get(level, frozenset())
        for place in before - keys:
            self.readers[place].discard(level)
            if not self.readers[place]:
                del self.readers[place]
        for place in keys - before:
            self.readers.setdefault(place, set()).add(level)
        if keys:
            self.reads[level] = keys
        else:
            self.reads.pop(level, None)


class _Entries(Struct, frozen=True):
    """What the fold asks for of entries."""

    buckets: Buckets

    def get(self, name: str, _: Collection[Entry] = ()) -> Collection[Entry]:
        return self.buckets.of(name)


def unknown(row: LevelRow, reason: str) -> LevelRow:
    """A level of which nothing is known any more but its round, so that no key is used twice."""
    return LevelRow(
        view=row.view,
        parent=row.parent,
        partition=row.partition,
        parent_uid=row.parent_uid,
        status="blocked",
        reason=reason,
        round=row.round,
        evaluations=row.evaluations,
        repeats=row.repeats,
        cause=row.cause,
        suppressed=row.suppressed,
    )
