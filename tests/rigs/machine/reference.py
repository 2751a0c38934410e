"""What should be: the records folded one by one into plain dictionaries, and levels computed from nothing else.

It shares with levelog the user's functions and msgspec; how objects are held, entries found, reads noted and levels
compared is its own. How levels stand that a view reads is taken from the table: each is compared by itself. It does
not compute the level of a function of children, nor what indices hold for that one.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Final

import msgspec
from msgspec import Struct

from levelog.levels import Level, Levels, LevelStatus
from levelog.resources import Owner
from levelog_base.wire.objects import ObjectKey, Uid
from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen, SyncFinished, SyncStarted
from levelog_base.wire.subjects import partition_of
from rigs.machine import operator as user
from rigs.machine.cluster import CONFIGS, GROUP, PARTS, RACKS, WEBS
from rigs.machine.log import PARTITIONS
from rigs.machine.tables import Row

LOOKUPS: Final = "@Config"
"""Name of the index that levelog makes of the class that a view looks objects up by."""

Entries = dict[tuple[str, Hashable, int], Any]
"""Values of one object, by index, key and place under it."""


class Shown(Struct, frozen=True):
    """An object as its folded records show it."""

    uid: str
    version: int
    body: bytes

    @property
    def metadata(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = msgspec.json.decode(self.body)["metadata"]
        return found


class Failure(Struct, frozen=True):
    """An index function that raised for an object."""

    error: str
    keys: tuple[Hashable, ...]
    """Those of old entries, and of owners; None alone: nobody knows them."""


class Look(Struct, frozen=True):
    """Everything that a view sees of its parent and reads; equal looks mean that it has nothing new to say."""

    uid: str
    inputs: Any
    reads: tuple[Any, ...]


class Outcome(Struct, frozen=True):
    """What a view says: two values, or why it cannot say anything."""

    desired: Any = None
    actual: Any = None
    error: str = ""
    blocked: str = ""
    """Name of an index that fails for an object of a key that was read."""
    lacks: tuple[str, ...] = ()
    """Names of those that fail for objects which may concern it; nothing is deleted then."""


class View(Struct, frozen=True):
    """A view as the reference knows it."""

    resource: str
    parent: type[Any]
    sources: tuple[str, ...]
    """Resources that the indices which it reads come from."""
    level: Callable[..., Level[Any]]
    indices: tuple[str, ...] = ()
    looks_up: bool = False
    """It looks up configs by their names."""
    takes_now: bool = False
    label: tuple[str, str | None] | None = None
    """What a label of the parent has to be; None: it must not be there."""
    is_reconciled: bool = False
    reads_levels: bool = False
    """It is given levels, and its own are shown to nobody who does not name it."""
    names: tuple[str, ...] = ()
    """Views whose levels of others it looks up, and no others."""
    behind_levels: tuple[str, ...] = ()
    """Resources that those of its parent come from, which it does not wait for itself once they are listed."""
    is_of_children: bool = False
    """What it says is not computed here."""

    def is_shown_of(self, parent: ObjectKey) -> bool:
        """Tell whether its level of an object is among those that others read."""
        return not self.reads_levels and parent.resource == self.resource


ALL: Final = (WEBS, PARTS, CONFIGS)

VIEWS: Final = {
    "parts": View(
        WEBS,
        user.Web,
        (PARTS, CONFIGS),
        user.parts_level,
        indices=("owned", "configs"),
        label=("paused", None),
        is_reconciled=True,
    ),
    "members": View(WEBS, user.Web, (PARTS,), user.members_level, indices=("by_team",)),
    "lateness": View(WEBS, user.Web, (), user.lateness_level, takes_now=True),
    "paint": View(PARTS, user.LabelledPart, (CONFIGS,), user.paint_level, looks_up=True, label=("app", "web")),
    "state": View(PARTS, user.Part, (), user.state_level, reads_levels=True, behind_levels=(CONFIGS,)),
    "kin": View(PARTS, user.Part, ALL, user.kin_level, reads_levels=True),
    "uncle": View(WEBS, user.Web, ALL, user.uncle_level, reads_levels=True, names=("kin",)),
    "wanted": View(RACKS, user.Rack, (WEBS,), user.family_level, is_of_children=True),
    "family": View(RACKS, user.Rack, ALL, user.family_level, reads_levels=True),
    "overview": View(CONFIGS, user.Config, ALL, user.overview_level, reads_levels=True),
}

LevelRows = Mapping[tuple[str, ObjectKey], Row]
"""Rows of the table `levels`, by view and parent."""

LEVELS: Final = "@levels"
"""Begins a note that levels were read, of a parent that stands there as the key; it may end with a view."""


class _Noting(Mapping[Any, Collection[Any]]):
    """An index as a plain dictionary that notes what is read."""

    def __init__(self, name: str, content: Mapping[Any, tuple[Any, ...]], changes: int, reads: list[Any]) -> None:
        self._name = name
        self._content = content
        self._changes = changes
        self._reads = reads

    def __getitem__(self, key: Any) -> Collection[Any]:
        values = self._content.get(key, ())
        self._reads.append((self._name, key, values))
        return values

    def __contains__(self, key: object) -> bool:
        return bool(self[key])

    def __iter__(self) -> Iterator[Any]:
        self._note_whole()
        return iter(sorted(self._content))

    def __len__(self) -> int:
        self._note_whole()
        return len(self._content)

    def _note_whole(self) -> None:
        # A read of the whole index depends on any change of it, also one that was taken back.
        self._reads.append((self._name, "*", self._changes))


class _Lookups:
    """Objects of a namespace by class and name, in a plain dictionary that notes what is looked up."""

    def __init__(self, namespace: str, content: Mapping[Any, tuple[Any, ...]], reads: list[Any]) -> None:
        self._namespace = namespace
        self._content = content
        self._reads = reads

    def get(self, resource: type[user.Config], name: str) -> user.Config | None:
        found = next(iter(self._content.get((self._namespace, name), ())), None)
        self._reads.append((LOOKUPS, name, found))
        return None if found is None else msgspec.convert(found, resource)


class Reference:
    """Objects and levels as they should be, given which records are folded."""

    def __init__(self, settled: Collection[str] = ()) -> None:
        """`settled` are keys of intents that were before the tables were emptied."""
        self.settled = frozenset(settled)
        self.objects: dict[ObjectKey, Shown] = {}
        self.folded_to = dict.fromkeys(range(PARTITIONS), 0)
        self.known: Counter[ObjectKey] = Counter()
        """Version up to which each object's history was seen, its end included."""
        self._places: dict[ObjectKey, tuple[int, int]] = {}
        """Partition and sequence of the last record that showed the object."""
        self._lists: dict[tuple[int, str], int] = {}
        self._listed: Counter[tuple[int, str]] = Counter()
        """Version of the last list that ended, by partition and resource."""
        self._entries: dict[ObjectKey, Entries] = {}
        self._failing: dict[ObjectKey, dict[str, Failure]] = {}
        """Of objects that an index fails for, by index."""
        self._index_changes: Counter[str] = Counter()

    def fold(self, records: Sequence[LoggedRecord]) -> None:
        """Take a batch that was folded."""
        # The ends of lists are folded by themselves: an index sees what was there just before them.
        for _, part in groupby(records, key=lambda logged: isinstance(logged.record, SyncFinished)):
            before = dict(self._entries)
            for logged in part:
                shown = dict(self.objects)
                self._take(logged)
                self.folded_to[logged.partition] = logged.sequence
                self._index(shown)
            for key in before.keys() | self._entries.keys():
                old, new = (_items(entries.get(key, {})) for entries in (before, self._entries))
                for index, _, _ in dict(old ^ new):
                    self._index_changes[index] += 1

    def is_listed(self, resource: str) -> bool:
        """Tell whether the end of a list of the resource was folded in all partitions."""
        return all((partition, resource) in self._listed for partition in range(PARTITIONS))

    def shows(self, target: ObjectKey, version: int) -> bool:
        """Tell whether the object was seen at this version or later, its absence from a list of then included."""
        listed = self._listed[partition_of(target, PARTITIONS), target.resource]
        return self.known[target] >= version or (target not in self.objects and listed >= version)

    def parents(self, view: str) -> list[ObjectKey]:
        """Objects that have a level of the view."""
        return [key for key in sorted(self.objects) if self.has_level(view, key)]

    def has_level(self, view: str, key: ObjectKey) -> bool:
        """Tell whether the object is one that the view has a level of."""
        of = VIEWS[view]
        if key.resource != of.resource or key not in self.objects:
            return False
        labels = self.objects[key].metadata.get("labels") or {}
        return of.label is None or labels.get(of.label[0]) == of.label[1]

    def outcome(self, view: str, parent: ObjectKey, now: datetime, levels: LevelRows) -> Outcome:
        """What the view says of the parent, where the levels that it may read stand as in `levels`."""
        return self._evaluate(VIEWS[view], parent, now, levels)[0]

    def look(self, view: str, parent: ObjectKey, now: datetime, levels: LevelRows) -> Look:
        """What the view sees."""
        return self._evaluate(VIEWS[view], parent, now, levels)[1]

    def entries(self) -> set[tuple[str, str, str, int, str]]:
        """Index, key, object, place and value of every entry, as JSON texts."""
        return {
            (index, _text(key), str(name), place, _text(value))
            for name, entries in self._entries.items()
            for (index, key, place), value in entries.items()
        } | {
            (index, f"!{'' if key is None else _text(key)}", str(name), 0, "")
            for name, errors in self._failing.items()
            for index, failure in errors.items()
            for key in failure.keys
        }

    def _take(self, logged: LoggedRecord) -> None:
        record = logged.record
        match record:
            case ObjectSeen():
                if record.version > self.known[record.key]:
                    self.known[record.key] = record.version
                    self.objects[record.key] = Shown(record.uid, record.version, record.body)
                held = self.objects.get(record.key)
                if held is not None and (held.uid, held.version) == (record.uid, record.version):
                    self._places[record.key] = (logged.partition, logged.sequence)
            case ObjectDeleted():
                held = self.objects.get(record.key)
                is_end = held is not None and held.uid == record.uid and record.version == held.version
                if record.version > self.known[record.key] or is_end:
                    self.known[record.key] = record.version
                    self.objects.pop(record.key, None)
            case SyncStarted():
                self._lists[logged.partition, record.sync_id] = logged.sequence
            case SyncFinished():
                self._sweep(logged.partition, record)
            case _:
                pass

    def _sweep(self, partition: int, record: SyncFinished) -> None:
        resource = record.resource.resource
        began = self._lists.pop((partition, record.sync_id))
        self._listed[partition, resource] = record.version
        for key, shown in list(self.objects.items()):
            is_unlisted = self._places[key] < (partition, began) and self._places[key][0] == partition
            is_watched = not record.namespaces or key.namespace in record.namespaces
            if key.resource == resource and is_unlisted and (shown.version <= record.version or not is_watched):
                del self.objects[key]
                self.known[key] = record.version if is_watched else shown.version - 1

    def _index(self, before: Mapping[ObjectKey, Shown]) -> None:
        changed = {key for key in before.keys() | self.objects.keys() if before.get(key) != self.objects.get(key)}
        for key in changed:
            old = self._entries.pop(key, {})
            self._failing.pop(key, None)
            shown, last = self.objects.get(key), before.get(key)
            is_same = last is not None and shown is not None and last.uid == shown.uid
            new, errors = _entries_of(key, shown, old if is_same else {}) if shown is not None else ({}, {})
            if new:
                self._entries[key] = new
            if errors:
                self._failing[key] = errors

    def _evaluate(self, view: View, key: ObjectKey, now: datetime, levels: LevelRows) -> tuple[Outcome, Look]:
        shown = self.objects[key]
        parent = msgspec.json.decode(shown.body, type=view.parent)
        reads: list[Any] = []
        arguments: list[Any] = [
            _Noting(name, self._content(name), self._index_changes[name], reads) for name in view.indices
        ]
        if view.looks_up:
            arguments.append(_Lookups(key.namespace, self._content(LOOKUPS), reads))
        if view.takes_now:
            arguments.append(now)
        if view.reads_levels:
            arguments.append(self._levels(key, levels, reads, names=view.names))
        try:
            level = view.level(parent, *arguments)
            outcome = Outcome(msgspec.to_builtins(level.desired), msgspec.to_builtins(level.actual))
        except ValueError as error:
            outcome = Outcome(error=str(error))
        errors: list[Any] = [(f"!{index}", None, self._errors(index, None)) for index in view.indices]
        lacks = {index for index in view.indices if self._errors(index, None)}
        whole: set[str] = set()
        for index, of, _ in reads:
            if index not in view.indices or index in whole:
                continue
            if of == "*":  # what it reads of it from there on has old entries, and counts
                whole.add(index)
                found = self._errors(index, "*")
                lacks |= {index} if found else set()
                errors.append((f"!{index}", of, found))
            elif found := self._errors(index, of):
                outcome = Outcome(blocked=outcome.blocked or index)
                errors.append((f"!{index}", of, found))
        if not outcome.blocked:
            outcome = msgspec.structs.replace(outcome, lacks=tuple(sorted(lacks)))
        return outcome, Look(shown.uid, msgspec.to_builtins(parent), (*reads, *errors))

    def _errors(self, index: str, key: Hashable) -> tuple[tuple[str, str], ...]:
        """Objects that an index fails for: under a key; None: of unknown keys; `*`: of all known ones."""
        failures = [(str(name), errors[index]) for name, errors in self._failing.items() if index in errors]
        return tuple(
            (name, failure.error)
            for name, failure in sorted(failures, key=lambda each: each[0])
            if key in failure.keys or (key == "*" and None not in failure.keys)
        )

    def _levels(
        self, parent: ObjectKey, rows: LevelRows, reads: list[Any], *, names: Collection[str] = (), only: str = ""
    ) -> Levels:
        """How the levels of an object stand, noted as read, and by it those of others, of views of these `names`.

        `only`: how the level of that view stands, not of those that are shown to all.
        """
        level_statuses: dict[str, LevelStatus] = {}
        shown = self.objects.get(parent)
        views = [only] if only else sorted(name for name, view in VIEWS.items() if view.is_shown_of(parent))
        for name in (each for each in views if self.has_level(each, parent)):
            row = rows.get((name, parent))
            if row is None or shown is None or row["parent_uid"] != shown.uid:
                level_statuses[name] = LevelStatus(status="blocked", reason="not evaluated yet")
            else:
                level_statuses[name] = _level_status(row, parent, has_children=VIEWS[name].is_of_children)
        told = tuple((name, *each.identity) for name, each in level_statuses.items())
        reads.append((f"{LEVELS}{only}", parent, told))

        def named(resource: Any, name: str, _: str | None) -> str:
            return str(resource.resource_type.key(parent.namespace, name))

        def find(name: str) -> Levels:
            other = ObjectKey.parse(name)
            if not names:
                return self._levels(other, rows, reads)
            found: dict[str, LevelStatus] = {}
            for each in names:
                told = self._levels(other, rows, reads, only=each)
                found |= {f"machine/{name}": level_status for name, level_status in told.items()}
            return Levels(found, find=find, named=named)

        return Levels(level_statuses, find=find, named=named)

    def _content(self, index: str) -> dict[Any, tuple[Any, ...]]:
        found: dict[Any, list[Any]] = {}
        for name in sorted(self._entries, key=str):
            for (of, key, _), value in self._entries[name].items():
                if of == index:
                    found.setdefault(key, []).append(value)
        return {key: tuple(values) for key, values in found.items()}


def _level_status(row: Row, parent: ObjectKey, *, has_children: bool) -> LevelStatus:
    drift = {part: tuple(keys) for part, keys in msgspec.json.decode(row["drift"] or b"{}").items()}
    desired = msgspec.json.decode(row["desired"] or b"{}") if has_children else {}
    names = [name.removeprefix("Web/") for name in desired]
    children = tuple(sorted(str(msgspec.structs.replace(parent, resource=WEBS, name=name)) for name in names))
    return LevelStatus(status=row["status"], reason=row["reason"], drift=drift, children=children)


def _entries_of(key: ObjectKey, shown: Shown, held: Entries) -> tuple[Entries, dict[str, Failure]]:
    """Entries of an object, and the failures of indices."""
    functions: dict[str, Callable[[], Iterable[tuple[Any, Any]]]] = {}
    if key.resource == PARTS:
        labels = shown.metadata.get("labels") or {}
        part = msgspec.json.decode(shown.body, type=user.Part)
        functions["owned"] = lambda: _owned(key, shown, part) if labels.get("app") == "web" else ()
        labelled = msgspec.json.decode(shown.body, type=user.LabelledPart)
        functions["by_team"] = lambda: user.by_team_entries(labelled)
    elif key.resource == CONFIGS:
        config = msgspec.json.decode(shown.body, type=user.Config)
        functions["configs"] = lambda: user.configs_entries(config)
        functions[LOOKUPS] = lambda: [((key.namespace, key.name), msgspec.to_builtins(config))]
    entries: Entries = {}
    errors: dict[str, Failure] = {}
    for index, function in functions.items():
        try:
            pairs = list(function())
        except ValueError as error:
            kept = {place: value for place, value in held.items() if place[0] == index}
            entries |= kept
            keys = {place[1] for place in kept} | (set(_owners(key, shown)) if index == "owned" else set())
            errors[index] = Failure(str(error), tuple(keys) or (None,))
            continue
        places: Counter[Hashable] = Counter()
        for name, value in pairs:
            entries[index, name, places[name]] = value
            places[name] += 1
    return entries, errors


def _owned(key: ObjectKey, shown: Shown, part: user.Part) -> Iterator[tuple[Owner, tuple[str, str]]]:
    """The part under the Web that controls it, which is one of the part's own namespace."""
    if part.spec.color == user.UNKNOWN:
        raise ValueError("no such color")
    for each in shown.metadata.get("ownerReferences", ()):
        if each.get("controller") and (each["apiVersion"], each["kind"]) == (f"{GROUP}/v1", "Web"):
            yield Owner(GROUP, "Web", key.namespace, each["uid"]), (key.name, part.spec.color)


def _owners(key: ObjectKey, shown: Shown) -> Iterator[Owner]:
    """What may own a part, or is the part itself."""
    yield Owner(GROUP, "Part", key.namespace, Uid(shown.uid))
    for each in shown.metadata.get("ownerReferences", ()):
        for namespace in (key.namespace, ""):
            yield Owner(each["apiVersion"].rpartition("/")[0], each["kind"], namespace, each["uid"])


def _items(entries: Entries) -> set[tuple[tuple[str, Hashable, int], str]]:
    return {(place, _text(value)) for place, value in entries.items()}


def _text(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
