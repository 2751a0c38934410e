"""Objects by revision: one counter for all, and a history per collection for watches and continued lists.

Limits: in memory only; history is kept until `compact()` or until a collection holds more than `history` changes.
Bodies are never changed in place: each write stores a new one.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from levelog_sandbox.schemas.registry import ServedResource

Json = dict[str, Any]
Key = tuple[str, str]
ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


def in_etcd(key: Key) -> str:
    """The key as etcd holds it, and orders by it: `a-b/x` comes before `a/x`."""
    return f"{key[0]}/{key[1]}"


class Stored:
    """One revision of one object; `namespace` is empty for cluster scope.

    What is current is kept decoded and encoded, what is history only encoded: that takes a third of the memory.
    """

    __slots__ = ("_body", "_views", "encoded", "name", "namespace", "revision")

    def __init__(self, namespace: str, name: str, body: Json, revision: int) -> None:
        self.namespace = namespace
        self.name = name
        self._body: Json | None = body
        self.revision = revision
        self.encoded: bytes = ENCODER.encode(body)
        self._views: dict[str, bytes] | None = None

    @property
    def body(self) -> Json:
        """The object decoded; not to be changed."""
        return _DECODER.decode(self.encoded) if self._body is None else self._body

    def retire(self) -> None:
        """Keep only the encoded form, as this revision is history."""
        self._body = None

    @property
    def uid(self) -> str:
        """The object's uid."""
        uid: str = self.body["metadata"].get("uid", "")
        return uid

    def body_as(self, resource: ServedResource) -> Json:
        """The object at the version of the resource."""
        if resource.from_stored:
            return resource.from_stored(self.body)
        if self.body["apiVersion"] != resource.api_version:
            return {**self.body, "apiVersion": resource.api_version}
        return self.body

    def encoded_as(self, resource: ServedResource) -> bytes:
        """The JSON of the object at the version of the resource."""
        if self.body["apiVersion"] == resource.api_version:
            return self.encoded
        if self._views is None:
            self._views = {}
        if resource.api_version not in self._views:
            self._views[resource.api_version] = ENCODER.encode(self.body_as(resource))
        return self._views[resource.api_version]


class Change:
    """One write's change of one object; `shown` is the object as watchers get it, at the write's revision."""

    __slots__ = ("_lines", "after", "before", "revision", "shown")

    def __init__(self, revision: int, before: Stored | None, after: Stored | None, shown: Stored) -> None:
        self.revision = revision
        self.before = before
        self.after = after
        self.shown = shown
        self._lines: dict[tuple[str, str], bytes] = {}

    @property
    def type(self) -> str:
        """ADDED, MODIFIED or DELETED."""
        return "ADDED" if self.before is None else "DELETED" if self.after is None else "MODIFIED"

    def line(self, type_: str, resource: ServedResource) -> bytes:
        """The watch line; made once for all watchers of a version."""
        key = (type_, resource.api_version)
        if key not in self._lines:
            self._lines[key] = watch_line(type_, self.shown.encoded_as(resource))
        return self._lines[key]


def watch_line(type_: str, encoded: bytes) -> bytes:
    """One line of a watch."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), encoded)


class Collection:
    """The objects of one kind, in the order of their keys, and what happened to them since `compacted`."""

    def __init__(self, storage: str, history: int) -> None:
        self.storage = storage
        self.objects: dict[Key, Stored] = {}
        self.changes: deque[Change] = deque()
        self.compacted = 0
        self.listeners: set[Callable[[Change], None]] = set()
        self._history = history
        self._ordered: list[Key] | None = None

    @property
    def changed(self) -> int:
        """Revision of the last change that is known, or up to which none is."""
        return self.changes[-1].revision if self.changes else self.compacted

    def in_order(self) -> Iterator[Stored]:
        """Every object, by namespace and name."""
        if self._ordered is None:
            self._ordered = sorted(self.objects, key=in_etcd)
        return (self.objects[key] for key in self._ordered)

    def as_of(self, revision: int) -> list[Stored]:
        """Every object as it was at a revision that is not compacted, in order."""
        if not self.changes or self.changes[-1].revision <= revision:
            return list(self.in_order())
        past = dict(self.objects)
        for change in reversed(self.changes):
            if change.revision <= revision:
                break
            key = (change.shown.namespace, change.shown.name)
            if change.before is None:
                del past[key]
            else:
                past[key] = change.before
        return [past[key] for key in sorted(past, key=in_etcd)]

    def since(self, revision: int) -> list[Change]:
        """The changes after a revision, oldest first."""
        later: list[Change] = []
        for change in reversed(self.changes):
            if change.revision <= revision:
                break
            later.append(change)
        later.reverse()
        return later

    def record(self, change: Change) -> None:
        """Take over a change and tell the listeners."""
        key = (change.shown.namespace, change.shown.name)
        if change.after is None:
            del self.objects[key]
            self._ordered = None
        else:
            self.objects[key] = change.after
            if change.before is None:
                self._ordered = None
        self.changes.append(change)
        while len(self.changes) > self._history:
            self.compacted = self.changes.popleft().revision
        for listener in tuple(self.listeners):
            listener(change)
        if change.before is not None:
            change.before.retire()
        if change.after is None:
            change.shown.retire()

    def restore(self, objects: Iterable[Stored]) -> None:
        """Hold exactly these objects, without history."""
        self.objects = {(stored.namespace, stored.name): stored for stored in objects}
        self.changes.clear()
        self._ordered = None

    def compact(self, revision: int) -> None:
        """Forget changes up to a revision."""
        while self.changes and self.changes[0].revision <= revision:
            self.changes.popleft()
        self.compacted = max(self.compacted, revision)


class Store:
    """All collections and the one counter."""

    def __init__(self, *, history: int = 20_000) -> None:
        self.revision = 1
        self.compacted = 0
        self.collections: dict[str, Collection] = {}
        self.listeners: list[Callable[[Collection, Change], None]] = []
        self._untold: deque[tuple[Collection, Change]] = deque()
        self._history = history

    def collection(self, storage: str) -> Collection:
        """The objects of a kind; empty at first."""
        if storage not in self.collections:
            self.collections[storage] = Collection(storage, self._history)
            self.collections[storage].compacted = self.compacted
        return self.collections[storage]

    def get(self, storage: str, namespace: str, name: str) -> Stored | None:
        """The stored object, or None."""
        return self.collection(storage).objects.get((namespace, name))

    def put(self, storage: str, body: Json) -> Stored:
        """Store a new revision of the object that the body names; its resourceVersion is set here."""
        before = self.get(storage, body["metadata"].get("namespace", ""), body["metadata"]["name"])
        stored = self._stamped(body)
        self._record(storage, Change(stored.revision, before, stored, stored))
        return stored

    def remove(self, storage: str, last: Stored) -> Stored:
        """Remove an object; returns its last state, at the revision of the removal."""
        before = self.get(storage, last.namespace, last.name)
        shown = self._stamped(last.body)
        self._record(storage, Change(shown.revision, before, None, shown))
        return shown

    def compact(self, revision: int | None = None) -> None:
        """Forget history up to a revision, or all of it; older watches and continue tokens answer 410."""
        self.compacted = self.revision if revision is None else revision
        for collection in self.collections.values():
            collection.compact(self.compacted)

    def restore(
        self, objects: Iterable[tuple[str, Json]], revision: int, changed: Mapping[str, int], compacted: int
    ) -> None:
        """Hold exactly these objects of a former store, by kind, at the revisions that they name, without history.

        `revision` is the newest that the former store gave, `changed` by kind the one of the last change, `compacted`
        the same for all other kinds. Listeners are told of each object as of a new one.
        """
        restored: dict[str, list[Stored]] = {storage: [] for storage in self.collections}
        for storage, body in objects:
            about = body["metadata"]
            stored = Stored(about.get("namespace", ""), about["name"], body, int(about["resourceVersion"]))
            restored.setdefault(storage, []).append(stored)
        for storage, kept in restored.items():
            self.collection(storage).restore(kept)
        self.revision = max(self.revision, revision)
        self.compacted = compacted
        for storage in (*self.collections, *changed):
            self.collection(storage).compacted = changed.get(storage, compacted)
        for storage, kept in restored.items():
            for stored in kept:
                self._tell(self.collection(storage), Change(stored.revision, None, stored, stored))

    def _stamped(self, body: Json) -> Stored:
        revision = self.revision + 1
        metadata = {**body["metadata"], "resourceVersion": str(revision)}
        self.revision = revision
        return Stored(metadata.get("namespace", ""), metadata["name"], {**body, "metadata": metadata}, revision)

    def _record(self, storage: str, change: Change) -> None:
        collection = self.collection(storage)
        collection.record(change)
        self._tell(collection, change)

    def _tell(self, collection: Collection, change: Change) -> None:
        """Tell all listeners of a change before any of the next, which a listener may make."""
        self._untold.append((collection, change))
        if len(self._untold) > 1:
            return
        try:
            while self._untold:
                for listener in self.listeners:
                    listener(*self._untold[0])
                self._untold.popleft()
        finally:
            self._untold.clear()
