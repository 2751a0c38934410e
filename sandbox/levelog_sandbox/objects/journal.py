"""A file with each change of a store: a sandbox that is started again is the same cluster.

Limits: what is written is in the hands of the operating system: it outlives the process, not a power cut. There is no
history: watches and continued lists of a former start go on if nothing of their kind changed since; else: 410.
One process may use a file at a time.
"""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgspec

from levelog_base.errors import ConfigurationError
from levelog_sandbox.objects.revisions import Change, Collection, Store

Json = dict[str, Any]
Key = tuple[str, str, str]


class Began(msgspec.Struct, tag=True, frozen=True):
    """The newest revision when the file was begun, and by kind, that of its last change."""

    revision: int
    changed: dict[str, int] | None = None
    """None: not known."""
    compacted: int = 0
    """Of kinds that are not among them."""


class Put(msgspec.Struct, tag=True, frozen=True):
    """An object as it was stored."""

    revision: int
    storage: str
    body: msgspec.Raw


class Removed(msgspec.Struct, tag=True, frozen=True):
    """An object that is gone."""

    revision: int
    storage: str
    namespace: str
    name: str


_DECODER = msgspec.json.Decoder(Began | Put | Removed)


class Journal:
    """Keeps a store in a file while the context is open.

    Entering takes over what the file holds, in place of what the store holds, and begins the file anew. Raises
    ConfigurationError, naming the file, if it is none of a sandbox or cannot be read or written.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self._path = path
        self._store = store
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        try:
            self._restore()
            self._begin()
        except OSError as error:
            raise ConfigurationError(f"{self._path} cannot be used: {error.strerror}") from error
        self._store.listeners.append(self._write)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.listeners.remove(self._write)
        if self._file is not None:
            self._file.close()

    def _restore(self) -> None:
        objects: dict[Key, Json] = {}
        changed: dict[str, int] = {}
        revision = compacted = 0
        for entry in self._entries():
            revision = max(revision, entry.revision)
            match entry:
                case Put():
                    body: Json = msgspec.json.decode(entry.body)
                    about = body["metadata"]
                    objects[entry.storage, about.get("namespace", ""), about["name"]] = body
                    changed[entry.storage] = max(entry.revision, changed.get(entry.storage, compacted))
                case Removed():
                    objects.pop((entry.storage, entry.namespace, entry.name), None)
                    changed[entry.storage] = max(entry.revision, changed.get(entry.storage, compacted))
                case Began():
                    compacted = entry.revision if entry.changed is None else entry.compacted
                    changed = dict(entry.changed or {})
        if revision:
            held = [(storage, body) for (storage, _, _), body in objects.items()]
            self._store.restore(held, revision, changed, compacted)

    def _entries(self) -> Iterator[Began | Put | Removed]:
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        # What follows the last line's end is empty, or a line that a killed process had no time to finish.
        for number, line in enumerate(lines[:-1], start=1):
            try:
                yield _DECODER.decode(line)
            except msgspec.DecodeError as error:
                raise ConfigurationError(f"{self._path} is not of a sandbox: line {number}: {error}") from error

    def _begin(self) -> None:
        fresh = self._path.with_name(f"{self._path.name}.new")
        fresh.touch(mode=0o600)
        with fresh.open("wb") as file:
            changed = {storage: collection.changed for storage, collection in self._store.collections.items()}
            file.write(_line(Began(self._store.revision, changed, self._store.compacted)))
            for storage, collection in self._store.collections.items():
                for stored in collection.in_order():
                    file.write(_line(Put(stored.revision, storage, msgspec.Raw(stored.encoded))))
        fresh.rename(self._path)
        self._file = self._path.open("ab", buffering=0)

    def _write(self, collection: Collection, change: Change) -> None:
        if self._file is None:
            return
        stored = change.after
        if stored is not None:
            self._file.write(_line(Put(change.revision, collection.storage, msgspec.Raw(stored.encoded))))
        else:
            gone = change.shown
            self._file.write(_line(Removed(change.revision, collection.storage, gone.namespace, gone.name)))


def _line(entry: Began | Put | Removed) -> bytes:
    return msgspec.json.encode(entry) + b"\n"
