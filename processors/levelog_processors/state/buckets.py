"""The entries of all indices, by object and by key."""

from collections.abc import Collection, Mapping
from datetime import datetime
from heapq import heappop, heappush

from msgspec import Struct

from levelog.handlers.indexers import MARK
from levelog_store.rows import ERRORS, Bucket, Entry, IndexKey, WholeIndex, whole_index_key

_Place = tuple[str, str, int]
"""Index, key, ordinal: what names an entry of one object."""


class Buckets(Struct):
    """Values under keys, and the record that changed each key last; -1 where none did."""

    by_object: dict[str, dict[_Place, Entry]] = {}
    by_key: dict[IndexKey, dict[tuple[str, int], bytes]] = {}
    versions: dict[IndexKey, int] = {}
    called: dict[str, set[str]] = {}
    """Names that stand for objects in the entries of calls, by their parent."""
    _keys: dict[str, set[str]] = {}
    """Keys of each index that have values."""
    _failing: dict[str, set[str]] = {}
    """Keys of what says that an index fails for objects, by index."""
    _expiring: list[tuple[datetime, str, _Place]] = []
    """A heap of entries; those that have ended otherwise are skipped."""

    def of(self, name: str) -> Collection[Entry]:
        """Entries of an object."""
        held = self.by_object.get(name)
        return held.values() if held is not None else ()

    def get(self, place: IndexKey) -> Bucket:
        """What is under a key, in the order of the objects."""
        held = self.by_key.get(place)
        values = tuple(held[each] for each in sorted(held)) if held else ()
        version, (index, key) = self.versions.get(place, -1), place
        if index not in self._failing or key.startswith(ERRORS):
            return Bucket(version, values)
        return Bucket(version, values, self._values(index, ERRORS + key))

    @property
    def is_failing(self) -> bool:
        """Tell whether an index fails for any object."""
        return bool(self._failing)

    def failures(self) -> Mapping[str, int]:
        """How many objects each index fails for; others are not there."""
        return {
            index: len({name for key in keys for name, _ in self.by_key[index, key]})
            for index, keys in self._failing.items()
        }

    def errors(self, index: str) -> tuple[bytes, ...]:
        """Name and error of each object that an index fails for, and of which keys are known."""
        keys = sorted(self._failing.get(index, set()) - {ERRORS})
        return tuple(sorted({value for key in keys for value in self._values(index, key)}))

    def _values(self, index: str, key: str) -> tuple[bytes, ...]:
        held = self.by_key.get((index, key), {})
        return tuple(held[each] for each in sorted(held))

    def whole(self, index: str, partitions: int) -> WholeIndex:
        """Every bucket of an index."""
        places = (whole_index_key(partition) for partition in range(partitions))
        return WholeIndex(
            versions={place: self.versions.get((index, place), -1) for place in places},
            buckets={key: self._values(index, key) for key in sorted(self._keys.get(index, ()))},
            errors=self.errors(index),
        )

    def put(self, name: str, entry: Entry) -> None:
        """Let an object have an entry, in place of what it had under the same key and ordinal."""
        place = entry.index, entry.key, entry.ordinal
        self.by_object.setdefault(name, {})[place] = entry
        self.by_key.setdefault((entry.index, entry.key), {})[name, entry.ordinal] = entry.value
        keys = self._failing if entry.key.startswith(ERRORS) else self._keys
        keys.setdefault(entry.index, set()).add(entry.key)
        if name.startswith(MARK):
            self.called.setdefault(_parent_of(name), set()).add(name)
        if entry.expires_at is not None:
            heappush(self._expiring, (entry.expires_at, name, place))

    def remove(self, name: str, place: _Place) -> None:
        """Let it have this one no more."""
        held = self.by_object.get(name, {})
        if held.pop(place, None) is None:
            return
        if not held:
            del self.by_object[name]
            calls = self.called.get(parent := _parent_of(name), {name})
            calls.discard(name)
            if not calls:
                self.called.pop(parent, None)
        index, key, ordinal = place
        bucket = self.by_key[index, key]
        del bucket[name, ordinal]
        if not bucket:
            del self.by_key[index, key]
            keys = self._failing if key.startswith(ERRORS) else self._keys
            keys[index].discard(key)
            if not keys[index]:
                del keys[index]

    def under(self, place: IndexKey) -> list[tuple[str, int]]:
        """Objects that have entries under a key, with their ordinals."""
        return list(self.by_key.get(place, ()))

    def expired(self, until: datetime) -> list[tuple[str, Entry]]:
        """Objects and their entries that expire up to a time, in the order of their names."""
        due: list[tuple[datetime, str, _Place]] = []
        found: list[tuple[str, Entry]] = []
        while self._expiring and self._expiring[0][0] <= until:
            at, name, place = each = heappop(self._expiring)
            entry = self.by_object.get(name, {}).get(place)
            if entry is not None and entry.expires_at == at:
                due.append(each)
                found.append((name, entry))
        for each in due:  # whoever folds removes them
            heappush(self._expiring, each)
        return sorted(found, key=lambda each: (each[0], each[1].index, each[1].key, each[1].ordinal))

    def next_expiry_after(self, now: datetime) -> datetime | None:
        """When the first entry ends that has not."""
        ends = (entry.expires_at for entries in self.by_object.values() for entry in entries.values())
        return min((each for each in ends if each is not None and each > now), default=None)


def _parent_of(name: str) -> str:
    return name[len(MARK) :].rsplit("/", 2)[0]
