"""State: what the log shows up to a position, who read which key, and which levels are to be decided on.

It is in memory, and does no I/O. A fold calls users' index functions and filters, and nothing here calls a view. What
the tables have not been told yet is noted here (`unwritten…`, `ends`), and `tables.py` writes it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from levelog.handlers.indexers import applied_place
from levelog_base.wire.objects import DELETED
from levelog_base.wire.records import LoggedRecord, ReceiptNoted, SyncFinished
from levelog_processors.fold.foldrules import Fold
from levelog_processors.keys import calls_key
from levelog_processors.program import Program
from levelog_processors.state.contents import Contents
from levelog_processors.state.outdated import Outdated
from levelog_processors.state.wakes import Wakes
from levelog_processors.state.writes import OpenWrites, is_settled
from levelog_store.decide.decisions import Decided, OpenIntent
from levelog_store.fold.changes import Changes, FoldedReceipt, Wake, merge_wake
from levelog_store.fold.ends import Ends
from levelog_store.fold.statewrites import Unwritten
from levelog_store.rows import (
    IndexKey,
    LevelRow,
    StoredObject,
    ViewParent,
    levels_place,
)


class State(Contents):
    """The fold of all partitions up to a position, and the levels that rest on it.

    `fold` tells what records change, and changes nothing; `apply` takes those changes. `take` takes a decision before
    its commit. `recall` takes changes of records that the levels in SQL have taken in already: objects and entries, and
    which levels are to be decided anew. `tables.py` and `evaluating.py` put in what SQL has of other processes' levels.
    """

    def __init__(self, program: Program, application: str, partitions: int, *, most_bodies: int | None = None) -> None:
        super().__init__(program, application, partitions, most_bodies=most_bodies)
        self.wakes = Wakes()
        self.reads: dict[ViewParent, frozenset[IndexKey]] = {}
        """Keys that each level read when it was evaluated last."""
        self.readers: dict[IndexKey, set[ViewParent]] = {}
        self.writes = OpenWrites()
        """Writes under way."""
        self.at_rest = set[ViewParent]()
        """Levels in sync whose last writes are settled and did not fail: their intents need not be read."""
        self.outdated = Outdated()
        """Levels that changed code has not decided on yet, if they are leased."""
        self.leased: Collection[int] = range(partitions)
        """Partitions whose levels are decided on here; levels of others are as SQL had them last."""
        self.ends = Ends()
        self.unwritten_reads: dict[tuple[ViewParent, IndexKey], bool] = {}
        """Whether a level reads a key, True, or no longer does; what the tables do not have yet."""
        self.is_pressing = False
        """What the tables do not have of objects and entries has to be there with the next commit."""
        self.newest_of_levels = 0
        """The newest version of a key of levels; above each that was there, as records that drop levels give theirs."""

    # -- fold

    def fold(self, part: Sequence[LoggedRecord], *, counts_rounds: bool = True) -> Changes:
        """What one of the `parts` of a batch changes; its records must not be folded yet.

        Without `counts_rounds`, its receipts are not compared with the rounds of levels: those are another process's,
        or ahead of the records.
        """
        prior = self.prior_to(part)
        if not counts_rounds:
            prior.rounds = {}
        if not isinstance(part[0].record, SyncFinished):
            return Fold(self.program, self.application, prior).records(part)
        return Fold(self.program, self.application, prior).sweep(part, self.held)

    def recall(self, changes: Changes, anew: Collection[str] = ()) -> None:
        """Take the changes of records that the last decisions have taken in, while the tables of objects are behind.

        Wakes and drops levels of views that are to be decided `anew`, and wakes those not decided on by changed code.
        """
        for place in self.readers.keys() & changes.keys.keys():
            del changes.keys[place]  # levels rest on its version in SQL; in other batches it would be another
        self._hold(changes)
        self._go([level for level in changes.gone if level[0] in anew], is_leased=True)
        self.ask({level: wake for level, wake in changes.wakes.items() if level[0] in anew or level in self.outdated})

    def apply(self, changes: Changes, *, is_leased: bool = True) -> dict[ViewParent, Wake]:
        """Take the changes of a part; returns the levels here that it wakes.

        Without `is_leased`, the part is of other processes' partitions: these write what it tells.
        """
        self.noted = self.unwritten if is_leased else None
        self._hold(changes)
        self._go(changes.gone, is_leased=is_leased)
        orphans = self._strip_orphans(changes.listed)
        self._go(orphans, is_leased=is_leased)
        wakes = self._woken(changes)
        if is_leased:
            self._end(changes)
            # a restart takes these records by `recall`, which finds no orphans, nor which receipts of calls are old
            self.is_pressing |= bool(orphans) or any(each.record.verb == "call" for each in changes.receipts)
        else:  # by its filters an object may have other levels now, on which its own process has decided already
            self.wake_lookups(self._looked_up(changes), wakes)
        self.ask(wakes)
        self.noted = self.unwritten
        return wakes

    def _hold(self, changes: Changes) -> None:
        for partition, point in changes.checkpoints.items():
            self.folded_to[partition] = point.sequence
            if point.time is not None:
                self.times[partition] = max(point.time, self.times.get(partition, point.time))
        for ended in changes.deletions:
            self.keep_deleted(ended.object, ended.uid, ended.deleted)
        for row in changes.objects.values():
            self.put(row)
        for name, sequence in changes.seen_again.items():
            if name in self.objects:
                self.move(name, sequence=sequence, version=self.objects[name].version)
        for name in changes.tombstones_lifted:
            self.lift(name)
        for tombstone in changes.tombstones.values():
            self.drop(tombstone.object)
            self.bury(tombstone)
        for level in changes.gone:
            self._forget_applied(level)
        for parent, uids in changes.calls_forgotten.items():
            self.forget_calls(parent, uids, kept=self.program.handled_deletions)
        for (index, key, name, ordinal), entry in changes.entries.items():
            if entry is None:
                self.remove_entry(name, (index, key, ordinal))
            else:
                self.put_entry(name, entry)
        self.syncs |= changes.syncs
        self.api_versions |= {place: row.api_version for place, row in changes.syncs.items() if row.api_version}
        for each in changes.replaced:
            self.await_list(each)
        self.unreadable |= changes.unreadable
        versions = self.buckets.versions
        keys = {place: max(at, versions.get(place, -1)) for place, at in changes.keys.items()}
        versions |= keys  # never lower, where partitions are folded from different positions on
        if self.noted is not None:
            self.noted.syncs |= changes.syncs
            self.noted.unreadable |= changes.unreadable
            self.noted.keys |= keys

    def _go(self, levels: Iterable[ViewParent], *, is_leased: bool) -> None:
        for level in levels:
            self.forget(level)
            if is_leased:
                held = self.objects.get(level[1])
                self.ends.gone[level] = held.uid if held is not None else ""
                self.ends.levels.pop(level, None)

    def _woken(self, changes: Changes) -> dict[ViewParent, Wake]:
        """Leased levels to wake: what the fold names, readers of changed and replaced things, writers of targets.

        A wake is an end if all its causes are receipts of the level's writes, or records of targets that it is writing
        to, whoever changed them; an echo if all are such records, and no receipt of these writes was folded before.
        """
        wakes = Changes(wakes=dict(changes.wakes))
        for each in changes.replaced:
            for level, row in self.levels.items():
                if row.partition == each.partition and row.view in each.views:
                    wakes.wake(level, Wake(each.partition, (each.sequence,)))
        for place, version in changes.keys.items():
            causes = tuple(changes.changed_by.get(place, (version,)))
            for level in self.readers.get(place, ()):
                if (known := self.levels.get(level)) is not None:
                    wakes.wake(level, Wake(known.partition, causes))
        echoes: dict[ViewParent, set[int]] = {}
        own: dict[ViewParent, set[int]] = {}
        for target, sequences in changes.touched().items():
            for key, (level, partition) in self.writes.of.get(target, {}).items():
                wakes.wake(level, Wake(partition, sequences))
                own.setdefault(level, set()).update(sequences)
                if key not in self.writes.with_receipt:
                    echoes.setdefault(level, set()).update(sequences)
        for receipt in changes.receipts:
            if receipt.record.outcome == "written" and receipt.record.verb != "call":
                own.setdefault(receipt.level, set()).add(receipt.sequence)
        for level, caused in own.items():
            if (wake := wakes.wakes.get(level)) is not None and caused.issuperset(wake.causes):
                is_echo = echoes.get(level, set()).issuperset(wake.causes)
                wakes.wakes[level] = replace(wake, is_echo=is_echo, is_end=True)
        return {level: wake for level, wake in wakes.wakes.items() if wake.partition in self.leased}

    def _looked_up(self, changes: Changes) -> dict[IndexKey, tuple[int, ...]]:
        """Keys of the levels of changed objects that somebody reads, with the records."""
        rows = changes.objects.values()
        found = {levels_place(shelf, row.object): (row.sequence,) for shelf in self.program.shelves for row in rows}
        return {place: causes for place, causes in found.items() if place in self.readers}

    def _end(self, changes: Changes) -> None:
        """Take in what records end or settle, and note it for SQL in `ends`, with observations and checkpoints."""
        ends = self.ends
        ends.checkpoints |= changes.checkpoints
        ends.observations += changes.observations
        for each in changes.replaced:
            for level, known in self.levels.items():
                if known.partition == each.partition and known.view in each.views:
                    self.levels[level] = ends.levels[level] = known.unknown(each.reason)
                    self.outdated.change(level)
            if each.is_other_history:
                ends.reverted.append((each.partition, each.resource))
        for receipt in changes.receipts:
            record, level = receipt.record, receipt.level
            row, parent = self.levels.get(level), self.objects.get(level[1])
            is_abandoned = parent is None or parent.uid != record.parent_uid or (record.verb == "call" and row is None)
            state = "settled" if is_abandoned and record.state == "written" else record.state
            ends.receipts.append((receipt, state))
            self.at_rest.discard(level)
            if state != "written":
                self.writes.end(record.key)
            else:
                self.writes.add_receipt(record.key)
            if receipt.has_view and parent is not None and parent.uid == record.parent_uid:
                self._raise_round(level, parent, row, receipt)
        self._settle()

    def _settle(self) -> None:
        """Settle those writes that the log shows already, of those that SQL is told next.

        Of an intent that was carried out twice, it has to show both. Other writes, as of targets that are not watched,
        are compared by `is_settled` when their levels are decided on.
        """
        ends = self.ends
        unseen = {each.record.key for each, _ in ends.receipts if not self._shows(each.record)}
        for ordinal, (each, state) in enumerate(ends.receipts):
            if state == "written" and each.record.key not in unseen:
                ends.receipts[ordinal] = each, "settled"
                self.writes.end(each.record.key)

    def _shows(self, record: ReceiptNoted) -> bool:
        """Tell whether what was written is settled, by what is held of its target."""
        target = str(record.target)
        if record.outcome != "written" or not (target in self.objects or target in self.tombstones):
            return False
        written = OpenIntent(
            **{name: getattr(record, name) for name in ("key", "view", "verb", "state", "outcome")},
            parent=str(record.parent),
            target=target,
            is_watched=True,
            is_folded=True,
            result_uid=record.target_uid,
            result_version=record.target_version,
        )
        return is_settled(self.with_target(written))

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
            self.outdated.change(level)

    def _strip_orphans(self, listed: Iterable[tuple[int, Sequence[str]]]) -> set[ViewParent]:
        """Find levels whose parents the list after a loss of the log lacks; forget what they applied and called."""
        found = set[ViewParent]()
        for partition, views in listed:
            found |= {
                level
                for level, row in self.levels.items()
                if row.partition == partition and level[0] in views and level[1] not in self.objects
            }
        for level in found:
            self._forget_applied(level)
            self.forget_calls(level[1])
        return found

    # -- decide

    def mark_written(self, *, is_mirrored: bool = True) -> None:
        """Note anew, since SQL has all that was noted; objects, entries and lists only if `is_mirrored`."""
        self.ends, self.unwritten_reads = Ends(), {}
        self.wakes.mark_written()
        if is_mirrored:
            self.noted = self.unwritten = Unwritten()
            self.is_pressing = False
        self.let_go()

    def take(self, decided: Decided) -> None:
        """Take a decision before its commit; should that fail, `Engine.load` makes another State."""
        level, partition = decided.name, decided.wake.partition
        self.levels[level] = decided.level
        self.set_reads(
            level, (self.reads.get(level, frozenset()) | decided.dependencies_added) - decided.dependencies_removed
        )
        for key in (*decided.settled, *decided.withdrawn):
            self.writes.end(key)
        for row in decided.intents:
            if row.state == "pending" and row.verb != "event":
                self.writes.begin(row.key, row.target, level, partition)
        self.wakes.conclude(decided)
        self.end_outdated(level)
        if decided.level.status == "in_sync" and not decided.basis.intents and not decided.intents:
            self.at_rest.add(level)
        else:
            self.at_rest.discard(level)

    def ask(self, wakes: Mapping[ViewParent, Wake]) -> None:
        """Note that levels are to be decided on, if they are leased, in an order that no hash seed changes."""
        for level, wake in sorted(wakes.items(), key=lambda each: (each[1].cause, each[0])):
            if wake.partition in self.leased:
                self.wakes.ask(level, wake)

    def confirm(self, confirmed: Iterable[Decided], changed: Mapping[IndexKey, tuple[int, ...]]) -> None:
        """Take decisions that change nothing in the tables; `changed` are the keys under which others look them up.

        Asks for the levels that may have looked these up meanwhile.
        """
        asked: dict[ViewParent, Wake] = {}
        for decided in confirmed:
            self.take(decided)
        self.wake_lookups({place: causes for place, causes in changed.items() if place in self.readers}, asked)
        self.ask(asked)
        self.let_go()

    def end_outdated(self, level: ViewParent) -> None:
        """Changed code has decided on a level, or it is gone: from now on its wake is written."""
        if self.outdated.end(level):
            self.wakes.unwritten.add(level)

    def forget(self, level: ViewParent) -> None:
        """Forget a level, with what it read and was told."""
        self.end_outdated(level)
        self.levels.pop(level, None)
        self.at_rest.discard(level)
        self.set_reads(level, frozenset())
        self.wakes.forget(level)

    def _forget_applied(self, level: ViewParent) -> None:
        place = applied_place(*level)
        for name, ordinal in self.buckets.under(place):
            self.remove_entry(name, (*place, ordinal))

    def wake_lookups(self, changed: Mapping[IndexKey, tuple[int, ...]], wakes: dict[ViewParent, Wake]) -> None:
        """Add wakes for the levels that look up others under these keys, which stand otherwise by these records."""
        for place, causes in changed.items():
            self.newest_of_levels = 1 + max(self.newest_of_levels, self.buckets.versions.get(place, -1))
            self.buckets.versions[place] = self.unwritten.keys[place] = self.newest_of_levels
            for level in self.readers.get(place, ()):
                if (row := self.levels.get(level)) is not None:
                    merge_wake(wakes, level, Wake(row.partition, causes))

    def handled(self) -> list[StoredObject]:
        """Deleted objects of leased partitions whose deletion is handled, or given up."""
        rows = [
            row
            for place in self.of_resources
            if place[0] in self.leased and place[1].endswith(DELETED)
            for row in self.held(place)
        ]
        return [row for row in rows if not any(self._is_open((view, row.object)) for view in self.program.views)]

    def _is_open(self, level: ViewParent) -> bool:
        row = self.levels.get(level)
        is_unfinished = (
            row is not None and row.status != "in_sync" and (row.status != "failed" or row.recheck_at is not None)
        )
        return is_unfinished or level in self.wakes.pending

    def forget_handled(self, rows: Iterable[StoredObject]) -> None:
        """Forget deleted objects, with their levels and calls."""
        for row in rows:
            self._go(
                [level for view in self.program.views if (level := (view, row.object)) in self.levels], is_leased=True
            )
            for effect in self.program.effects:
                for name, ordinal in self.buckets.under((effect, calls_key(row.uid))):
                    self.remove_entry(name, (effect, calls_key(row.uid), ordinal))
            self.drop(row.object)

    def forget_old(self, before: int) -> None:
        """Forget tombstones of records before that one, and versions that old of keys without values and readers.

        Whoever prunes SQL does so there.
        """
        self.tombstones = {name: row for name, row in self.tombstones.items() if row.sequence >= before}
        versions, buckets = self.buckets.versions, self.buckets.by_key
        self.buckets.versions = {
            place: at for place, at in versions.items() if at >= before or place in buckets or place in self.readers
        }

    def set_reads(self, level: ViewParent, keys: frozenset[IndexKey]) -> None:
        """Note which keys a level has read, in place of those before."""
        before = self.reads.get(level, frozenset())
        if self.noted is not None:
            self.unwritten_reads |= {(level, place): place in keys for place in before ^ keys}
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
