"""What a State holds of the log: objects, entries of indices, lists; and what of that the tables do not have yet.

Bodies that were used longest ago leave memory once the tables have them.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from levelog.indices import Contact
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import LoggedRecord
from levelog_processors.fold.entries import note_time
from levelog_processors.fold.receipts import levels_of_calls
from levelog_processors.keys import calls_key
from levelog_processors.program import Program
from levelog_processors.state.buckets import Buckets
from levelog_store.decide.decisions import OpenIntent
from levelog_store.fold.changes import PriorState, Replaced
from levelog_store.fold.statewrites import Unwritten
from levelog_store.rows import (
    Entry,
    Input,
    LevelRow,
    StoredObject,
    SyncRow,
    Tombstone,
    UnreadableRow,
    ViewParent,
    contact_of,
)

ABSENT: Final = b""
"""In place of a body that is not in memory."""
MOST_BYTES: Final = 2**25
"""Of bodies in memory, 32 MiB."""


class Contents:
    """Objects, entries and lists of all partitions, up to a position, and how far levels are. No I/O."""

    def __init__(self, program: Program, application: str, partitions: int, *, most_bodies: int | None = None) -> None:
        """`most_bodies`: bytes of bodies in memory, but for those of `program.kept`; None: all stay."""
        self.program = program
        self.application = application
        self.partitions = partitions
        self.objects: dict[str, StoredObject] = {}
        """Objects by name; ABSENT stands for a body that has left memory."""
        self._bodies = _Bodies(most_bodies)
        self.tombstones: dict[str, Tombstone] = {}
        self.unreadable: dict[tuple[int, str], UnreadableRow] = {}
        """Records that were skipped, by partition and place."""
        self.syncs: dict[Input, SyncRow] = {}
        self.api_versions: dict[Input, str] = {}
        """Version in which each resource is recorded; not there: nobody says."""
        self.folded_to = dict.fromkeys(range(partitions), 0)
        """Sequence up to which each partition is folded."""
        self.times: dict[int, datetime] = {}
        """The log's time in each partition."""
        self.buckets = Buckets()
        self.levels: dict[ViewParent, LevelRow] = {}
        self.of_resources: dict[Input, set[str]] = {}
        """Names of objects."""
        self.unwritten = Unwritten()
        """What the tables do not have yet, if they are to."""
        self.noted: Unwritten | None = self.unwritten
        """Where to note changes; None: they are of partitions that another process writes."""
        self.may_lack_levels = False
        """SQL may have lost decisions: what receipts tell of levels that are not there is noted."""

    def put(self, row: StoredObject) -> None:
        """Hold an object, in place of what was held of it."""
        self.put_back(row)
        self.of_resources.setdefault((row.partition, row.resource), set()).add(row.object)
        if self.noted is not None:
            self.noted.objects[row.object] = row

    def put_back(self, row: StoredObject) -> None:
        """Hold an object as it is, with its body in memory again."""
        self.objects[row.object] = row
        if row.body != ABSENT and row.resource not in self.program.kept:
            self._bodies.use(row.object, row.body)

    def held(self, place: Input) -> list[StoredObject]:
        """Objects of a resource in a partition, by name."""
        return [self.objects[name] for name in sorted(self.of_resources.get(place, ()))]

    def move(self, name: str, *, sequence: int, version: int) -> None:
        """Hold an object as it is, as of another record or version."""
        row = self.objects[name] = replace(self.objects[name], sequence=sequence, version=version)
        if self.noted is not None:
            noted = self.noted.objects.get(name)
            self.noted.objects[name] = replace(row, body=noted.body if noted is not None else ABSENT)

    def lacking(self, names: Iterable[str]) -> list[str]:
        """The objects of these names whose bodies are not in memory."""
        return [name for name in names if name in self.objects and self.objects[name].body == ABSENT]

    def with_target(self, intent: OpenIntent) -> OpenIntent:
        """An intent with what is held of its target."""
        shown, gone = self.objects.get(intent.target), self.tombstones.get(intent.target)
        return replace(
            intent,
            shown_uid=shown.uid if shown else None,
            shown_version=shown.version if shown else None,
            shown_is_deleting=shown.is_deleting if shown else None,
            shown_manager=(shown.manager or "") if shown else "",
            buried_version=gone.version if gone else None,
        )

    def let_go(self) -> None:
        """Keep no more bodies than are to be in memory, if the tables have all of them."""
        for name in self._bodies.take_excess() if not self.unwritten.objects else ():
            self.objects[name] = replace(self.objects[name], body=ABSENT)

    def drop(self, name: str) -> None:
        """Hold an object no more."""
        row = self.objects.pop(name, None)
        if row is None:
            return
        self._bodies.drop(name)
        self.of_resources[row.partition, row.resource].discard(name)
        if self.noted is not None:
            self.noted.objects[name] = None

    def bury(self, row: Tombstone) -> None:
        """Note that an object was deleted."""
        self.tombstones[row.object] = row
        if self.noted is not None:
            self.noted.tombstones[row.object] = row

    def lift(self, name: str) -> None:
        """Let what is told next of an object that was deleted be newer."""
        if self.tombstones.pop(name, None) is not None and self.noted is not None:
            self.noted.tombstones[name] = None

    def put_entry(self, name: str, entry: Entry) -> None:
        """Let an object have an entry."""
        self.buckets.put(name, entry)
        if self.noted is not None:
            self.noted.entries[entry.index, entry.key, name, entry.ordinal] = entry

    def remove_entry(self, name: str, place: tuple[str, str, int]) -> None:
        """Let an object have one no more, by index, key and ordinal."""
        self.buckets.remove(name, place)
        if self.noted is not None:
            index, key, ordinal = place
            self.noted.entries[index, key, name, ordinal] = None

    def keep_deleted(self, name: str, uid: str, deleted: ObjectKey) -> None:
        """Hold a deleted object under another name, until its deletion is handled."""
        row = self.objects.get(name)
        if row is None or row.uid != uid or str(deleted) in self.objects:
            return
        self.put(replace(row, object=str(deleted), resource=str(deleted.group_resource), is_deleting=False))

    def forget_calls(self, parent: str, uids: Collection[str] = (), *, kept: Collection[str] = ()) -> None:
        """Forget the calls that were made for a parent, or for these uids of it, but those in some indices."""
        keys = set(map(calls_key, uids))
        for name in list(self.buckets.called.get(parent, ())):
            for entry in list(self.buckets.of(name)):
                if entry.index not in kept and (not keys or entry.key in keys):
                    self.remove_entry(name, (entry.index, entry.key, entry.ordinal))

    def await_list(self, each: Replaced) -> None:
        """Let what is told next of a resource be newer than what is held of it."""
        for name in list(self.of_resources.get((each.partition, each.resource), ())):
            row = self.objects[name]
            self.move(name, sequence=row.sequence, version=0 if each.is_other_history else row.version - 1)
        if each.is_other_history:
            of = (name for name, row in self.tombstones.items() if row.partition == each.partition)
            for name in [name for name in of if str(ObjectKey.parse(name).group_resource) == each.resource]:
                self.lift(name)

    def prior_to(self, part: Sequence[LoggedRecord]) -> PriorState:
        """What the fold of a part of a batch has to know of what was there before."""
        expires = self.program.expires
        return PriorState(
            objects=self.objects,
            tombstones=self.tombstones,
            entries_of=self.buckets.of,
            levels=self.levels,
            rounds=self._rounds(part),
            syncs=self.syncs,
            api_versions=self.api_versions,
            times=self.times if expires else {},
            expired=self._expired(part) if expires else (),
        )

    def _rounds(self, part: Sequence[LoggedRecord]) -> dict[ViewParent, tuple[str, int]]:
        named = levels_of_calls(part, with_writes=self.may_lack_levels)
        rows = ((level, self.levels.get(level)) for level in named)
        unmade = ("", 0)
        return {
            level: (row.parent_uid, row.round) if row is not None else unmade
            for level, row in rows
            if row is not None or self.may_lack_levels
        }

    def _expired(self, part: Sequence[LoggedRecord]) -> Sequence[tuple[str, Entry]]:
        times = dict(self.times)
        for logged in part:
            note_time(times, logged)
        return self.buckets.expired(max(times.values())) if times else ()

    def contact(self, resource: str) -> Contact:
        """How far the watch of a resource can be trusted, as all partitions have seen it."""
        return contact_of([row for row in self.syncs.values() if row.resource == resource], self.partitions)


class _Bodies:
    """Sizes of the bodies that may leave memory, least recently used first."""

    def __init__(self, most: int | None) -> None:
        """`most`: bytes; None: all bodies stay."""
        self.most: Final = most
        self._sizes: dict[str, int] = {}
        self._bytes = 0

    def use(self, name: str, body: bytes) -> None:
        """Count an object's body as used last."""
        self.drop(name)
        self._sizes[name] = len(body)
        self._bytes += len(body)

    def drop(self, name: str) -> None:
        """Count the body of an object no more."""
        self._bytes -= self._sizes.pop(name, 0)

    def take_excess(self) -> list[str]:
        """Objects whose bodies have to go, which are not counted any more."""
        gone: list[str] = []
        left = self._bytes
        for name, size in self._sizes.items():  # in one go: to find the first one passes all that has gone before it
            if self.most is None or left <= self.most:
                break
            gone.append(name)
            left -= size
        for name in gone:
            self.drop(name)
        return gone
