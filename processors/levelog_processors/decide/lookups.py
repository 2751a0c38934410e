"""What a view may look up, what it read, and which reads count when its level is compared."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from levelog.calls.faults import HandlerFault
from levelog.handlers.children import ChildrenView
from levelog.handlers.indexers import object_key
from levelog.indices import Index, Objects
from levelog.levels import Levels, LevelStatus
from levelog.resources import ResourceBase
from levelog_base.errors import OperatorError
from levelog_base.wire.canonical import digest
from levelog_processors.bound import BoundView
from levelog_processors.decide.levelstatuses import decoded, timeless
from levelog_processors.keys import CONTACT, canonical_key, contact_key, key_from, lookup_key
from levelog_store.owners.handlers import is_outdated
from levelog_store.rows import ERRORS, WHOLE_INDEX, Bucket, IndexKey, WholeIndex, is_of_levels, levels_place

R = TypeVar("R", bound=ResourceBase)


class _Placed(Struct):
    class Metadata(Struct):
        namespace: str = ""

    metadata: Metadata


_placed = msgspec.json.Decoder(_Placed)


class ObjectLookups(Objects):
    """Objects for one evaluation; `bucket` returns the values under a key of an index, and records the read.

    `namespaces` are the only ones watched, by resource; levelog does not know the objects in others.
    """

    def __init__(
        self,
        view: BoundView,
        parent: bytes,
        bucket: Callable[[str, str], tuple[bytes, ...]],
        namespaces: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._view = view
        self._parent = parent
        self._bucket = bucket
        self._namespaces = namespaces

    def get(self, resource: type[R], name: str, namespace: str | None = None) -> R | None:
        """Look an object up; see `Objects.get`."""
        index = self._view.objects.get(resource)
        view = self._view.handler.name
        if index is None:
            declared = ", ".join([*(cls.__name__ for cls in self._view.objects), resource.__name__])
            raise OperatorError(
                f"view {view} looks up {resource.__name__} {name!r} without declaring that it reads "
                f"{resource.__name__}: write @op.view(reads=[{declared}])"
            )
        place = _place(self._view, self._parent, resource, name, namespace, "objects.get")
        watched = self._namespaces.get(str(resource.resource_type.group_resource), ())
        if watched and resource.resource_type.scope == "Namespaced" and place not in watched:
            raise OperatorError(
                f"view {view} looks up {resource.__name__} {name!r} in namespace {place}, but levelog watches "
                f"{', '.join(watched)} alone and cannot tell what is there"
            )
        found = self._bucket(index, canonical_key(object_key(resource, place, name)))
        if not found:
            return None
        source = self._view.handler.objects[resource]
        try:
            return cast("R", source.read(found[0]))
        except ValueError as error:
            shown = resource.resource_type.key(place, name)
            raise ValueError(f"{shown} cannot be read as {resource.__name__}: {error}") from error


class LevelLookups(Struct, frozen=True):
    """How the levels of other parents stand, as one evaluation sees them; `bucket` as for `ObjectLookups`."""

    view: BoundView
    parent: bytes
    bucket: Callable[[str, str], tuple[bytes, ...]]
    found: dict[str, dict[str, LevelStatus]] = {}
    """What was looked up, by parent and view."""

    @property
    def outdated(self) -> str:
        """One that changed code has not decided on, in words; empty: none."""
        all_found = ((parent, view, each) for parent, levels in self.found.items() for view, each in levels.items())
        return next((f"{view} of {at}: {each.reason}" for at, view, each in all_found if is_outdated(each)), "")

    def given(self, level_statuses: Mapping[str, LevelStatus]) -> Levels:
        """Some levels, from which others are found."""
        return self._levels((name.partition("/")[2], level_status) for name, level_status in level_statuses.items())

    def _levels(self, named: Iterable[tuple[str, LevelStatus]]) -> Levels:
        return Levels(named, find=self._find, named=self._named)

    def _find(self, parent: str) -> Levels:
        found: dict[str, LevelStatus] = {}
        for shelf in self.view.shelves.get(parent.partition("/")[0], ()):
            told = decoded(self.bucket(*levels_place(shelf, parent)))
            self.found[parent] = self.found.get(parent, {}) | told
            found |= {name if name == shelf else name.partition("/")[2]: each for name, each in told.items()}
        return self._levels(found.items())

    def _named(self, resource: type[ResourceBase], name: str, namespace: str | None) -> str:
        declared = self.view.handler.levels_of
        shelves = self.view.shelves.get(str(resource.resource_type.group_resource), ())
        is_named = not set(shelves).isdisjoint(self.view.handler.levels_by_name)
        if not is_named and resource.resource_type not in [cls.resource_type for cls in declared]:
            classes = ", ".join([*(cls.__name__ for cls in declared), resource.__name__])
            raise OperatorError(
                f"view {self.view.handler.name} looks up levels of {resource.__name__} {name!r} without declaring "
                f"that: write @op.view(levels_of=[{classes}])"
            )
        place = _place(self.view, self.parent, resource, name, namespace, "levels.of")
        return str(resource.resource_type.key(place, name))


def _place(
    view: BoundView, parent: bytes, resource: type[ResourceBase], name: str, namespace: str | None, call: str
) -> str:
    """The namespace to look in, the parent's by default. Raises OperatorError if there has to be one and is none."""
    place = _placed.decode(parent).metadata.namespace if namespace is None else namespace
    if not place and resource.resource_type.scope == "Namespaced":
        what = f"levels of {resource.__name__}" if call == "levels.of" else resource.__name__
        raise OperatorError(
            f"view {view.handler.name} looks up {what} {name!r} without a namespace, and its parent has none: "
            f"write {call}({resource.__name__}, {name!r}, namespace=…)"
        )
    return place


Contents: TypeAlias = Mapping[IndexKey, Sequence[bytes]]

Sight: TypeAlias = Callable[[Contents], tuple[Contents, bytes]]
"""Turns what was read into what of it counts: contents that count as they are, and the sum of the others."""


def sight(view: BoundView, parent_uid: str, desired: bytes | None) -> Sight | None:
    """How a level with this desired value sees its reads; None: unchanged.

    A level of children ignores fields that no manifest sets, so that they wake nothing.
    """
    if not isinstance(view.handler, ChildrenView):
        return None
    return partial(view.handler.sight, desired or b"", parent_uid)


MOST_KEYS: Final = 10_000
"""Keys that one evaluation may read, each of which is a row that wakes the level; a whole index counts as a few."""

MOST_HELD_BY_KEY: Final = 4_000

MOST_HELD: Final = 16_000
"""Bytes that a decision stores of the values under one key, and under all its keys."""


class IndexMemory(Protocol):
    """What indices hold, at hand."""

    def bucket(self, place: IndexKey) -> Bucket:
        """What is under a key."""
        ...

    def whole(self, index: str) -> WholeIndex:
        """Every bucket of an index."""
        ...


class Reads:
    """What one evaluation has read."""

    def __init__(self, memory: IndexMemory) -> None:
        self._memory = memory
        self._wholes: dict[str, WholeIndex] = {}
        self.versions: dict[IndexKey, int] = {}
        self._contents: dict[IndexKey, tuple[bytes, ...]] = {}
        self.errors: dict[str, set[bytes]] = {}
        """Errors of what was read under keys, by index."""

    def bucket(self, index: str, key: str) -> tuple[bytes, ...]:
        """Values under a key. Raises HandlerFault after too many keys."""
        place = (index, key)
        if place in self._contents:
            return self._contents[place]
        if whole := self._wholes.get(index):  # the whole index is read already, and covers the key
            return whole.buckets.get(key, ())
        if len(self._contents) >= MOST_KEYS:
            raise HandlerFault(
                f"read more than {MOST_KEYS:,} keys, the last of index {index}: read the index as a whole"
            )
        bucket = self._memory.bucket(place)
        self.versions[place] = bucket.version
        self._contents |= _contents_of(place, bucket)
        if bucket.errors:
            self.errors.setdefault(index, set()).update(bucket.errors)
        return bucket.values

    @property
    def contents(self) -> Mapping[IndexKey, tuple[bytes, ...]]:
        """The values read so far."""
        return self._contents

    def whole(self, index: str) -> WholeIndex:
        """Every bucket of an index."""
        if index not in self._wholes:
            whole = self._wholes[index] = self._memory.whole(index)
            for key, version in whole.versions.items():
                self.versions[index, key] = version
                self._contents[index, key] = (_version_bytes(version),)
        return self._wholes[index]

    def errors_of_whole(self, index: str) -> tuple[bytes, ...]:
        """Errors of an index that was read as a whole."""
        whole = self._wholes.get(index)
        return whole.errors if whole is not None else ()

    def digest(self, sight: Sight | None = None) -> str:
        """Identity of all that was read and counts: equal digests mean that the view would see the same again."""
        return _digest(self._contents, sight)


def contents_to_keep(
    versions: Mapping[IndexKey, int], contents: Mapping[IndexKey, Sequence[bytes]]
) -> dict[IndexKey, bytes]:
    """The values under keys of these versions, as JSON arrays, if they are short enough to store with a decision."""
    found: dict[IndexKey, bytes] = {}
    left = MOST_HELD
    for place, version in sorted(versions.items()):
        if version <= 0 or place[1].startswith(WHOLE_INDEX):
            continue  # nothing was ever there, or it is not in one place
        content = b"[" + b",".join(contents[place]) + b"]"
        if len(content) <= min(MOST_HELD_BY_KEY, left):
            found[place] = content
            left -= len(content)
    return found


def digest_of(buckets: Mapping[IndexKey, Bucket], sight: Sight | None = None) -> str:
    """Digest that an evaluation would have that reads just these buckets."""
    found: dict[IndexKey, tuple[bytes, ...]] = {}
    for place, bucket in buckets.items():
        found |= _contents_of(place, bucket)
    return _digest(found, sight)


def _contents_of(place: IndexKey, bucket: Bucket) -> dict[IndexKey, tuple[bytes, ...]]:
    """What an evaluation sees of a bucket, and apart from it the errors."""
    index, key = place
    found = {place: contents_of(index, key, bucket)}
    return found | {(index, ERRORS + key): bucket.errors} if bucket.errors else found


def _digest(read: Contents, sight: Sight | None) -> str:
    contents, seen = sight(read) if sight else (read, b"")
    parts: list[bytes | str] = [seen]
    for (index, key), values in sorted(contents.items()):
        parts += [index, key, *values, b"\0"]
    return digest(*parts)


def digest_of_versions(versions: Mapping[IndexKey, int]) -> str:
    """Digest of the versions of the keys read, empty if there were none: if it is equal, so are the values."""
    return (
        digest(*(f"{index}\0{key}\0{max(at, 0)}" for (index, key), at in sorted(versions.items()))) if versions else ""
    )


def contents_of(index: str, key: str, bucket: Bucket) -> tuple[bytes, ...]:
    """What an evaluation sees of a bucket."""
    if key.startswith(WHOLE_INDEX):  # has no values of its own: its version tells that something changed
        return (_version_bytes(bucket.version),)
    if is_of_levels((index, key)):
        return timeless(bucket.values)
    if index == CONTACT:  # how many partitions know of it already makes no difference
        return bucket.values[:1]
    if key == ERRORS:  # any number of objects, of which one is named
        return (*bucket.values[:1], str(len(bucket.values)).encode())
    return bucket.values


def _version_bytes(version: int) -> bytes:
    return str(max(version, 0)).encode()


class IndexReader(Index[Any, Any]):
    """An index as one evaluation sees it."""

    def __init__(self, name: str, types: tuple[Any, Any], reads: Reads, resource: str) -> None:
        self._name = name
        self._key_type, value_type = types
        self._resource = resource
        self._reads = reads
        self._decoder = msgspec.json.Decoder(value_type)

    def __getitem__(self, key: Any) -> Collection[Any]:
        return tuple(self._decoder.decode(value) for value in self._bucket(key))

    def get(self, key: Any, default: Any = None) -> Any:
        """Values under the key, or the default where there are none."""
        return self[key] or default

    def __contains__(self, key: object) -> bool:
        return bool(self._bucket(key))

    def _bucket(self, key: object) -> tuple[bytes, ...]:
        return self._reads.bucket(self._name, lookup_key(self._name, self._key_type, key))

    def __iter__(self) -> Iterator[Any]:
        return (key_from(text) for text in sorted(self._reads.whole(self._name).buckets))

    def __len__(self) -> int:
        return len(self._reads.whole(self._name).buckets)

    @property
    def is_stale(self) -> bool:
        """Whether the objects behind the index are being listed again."""
        return bool(self._reads.bucket(*contact_key(self._resource)))
