"""Rows that several stages use: objects, index entries, lists and levels of one application."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from levelog.indices import Contact
from levelog_base.wire.canonical import canonical
from levelog_base.wire.objects import Application, Cluster

T = TypeVar("T")


class Origin(Struct, frozen=True, kw_only=True):
    """One application on the log of one cluster; idempotency keys are made of it."""

    cluster: Cluster
    application: Application
    partitions: int
    stream_created: str = ""
    """Identity of the stream that tables were folded from."""


class Scope(Origin, frozen=True, kw_only=True):
    """The same, as a process found it in the tables when it started."""

    number: int
    """The first part of every key."""
    fingerprint: str
    """Fingerprint of this process's code. Commits are refused once another code was promoted."""
    resets: int
    """How often everything folded was deleted, to be folded again."""
    owner: str = ""
    """Processor of this process, under whose leases it commits; empty: none works here."""


ViewParent = tuple[str, str]
"""View and parent: what names a level."""

IndexKey = tuple[str, str]
"""Index and canonical key: what names a bucket of entries."""

Input = tuple[int, str]
"""Partition and resource: what names a list as one partition saw it."""

ERRORS: Final = "!"
"""Begins the keys of entries that stand for objects which an index fails for; no canonical key begins so.

Before a key: the object has old entries under that key, or may belong there. Alone: nobody knows its keys.
"""

WHOLE_INDEX: Final = "*"
"""Begins the keys on which a read of a whole index depends; no canonical key begins so."""


def whole_index_key(partition: int) -> str:
    """Key that changes with any entry which the objects of a partition have in an index."""
    return f"{WHOLE_INDEX}{partition}"


STATUSES: Final = ("in_sync", "drifting", "settling", "failed", "blocked", "deleting")
"""Every status of a level."""
UNSETTLED: Final = ("pending", "claimed", "written")
"""States of intents that levels wait for."""
ENDED: Final = ("settled", "satisfied", "failed", "superseded")
"""The others."""

_LEVELS: Final = "/@levels"
"""Ends the name of an index, after that of the operator, which is read from `levels`; no index of objects has it."""


def levels_place(shelf: str, parent: str) -> IndexKey:
    """Key that changes with how the levels of a parent stand, for who looks them up.

    A shelf is an operator, for its views that take no levels, or one view, `operator/view`.
    """
    return f"{shelf}{_LEVELS}", canonical(parent).decode()


def is_of_levels(place: IndexKey) -> bool:
    """Tell whether levels are under a key, not entries of objects."""
    return place[0].endswith(_LEVELS)


def shelf_at(place: IndexKey) -> str:
    """The shelf that levels under this key are on."""
    return place[0].removesuffix(_LEVELS)


def parent_at(place: IndexKey) -> str:
    """The parent whose levels are under this key."""
    return msgspec.json.decode(place[1], type=str)


def namespace_of(name: str) -> str:
    """The namespace in an object's name; objects without one share theirs."""
    return name.split("/", 2)[1]


def in_turn(rows: Iterable[T], parent: Callable[[T], str]) -> list[T]:
    """The rows in their order, but of each namespace one after the other: none waits behind all that another has."""
    places = Counter[str]()
    placed: list[tuple[int, T]] = []
    for row in rows:
        namespace = namespace_of(parent(row))
        placed.append((places[namespace], row))
        places[namespace] += 1
    return [row for _, row in sorted(placed, key=itemgetter(0))]


class Entry(Struct, frozen=True):
    """One value that an object gives under a key of an index."""

    index: str
    key: str
    ordinal: int
    value: bytes
    error: str = ""
    expires_at: datetime | None = None


class StoredObject(Struct, frozen=True, kw_only=True, gc=False):
    """A row of `objects`, but for the name, which `object` ends with."""

    object: str
    partition: int
    resource: str
    namespace: str
    uid: str
    version: int
    sequence: int
    is_deleting: bool
    body: bytes
    recorded_at: datetime | None = None
    """Time of the record that showed this version first."""
    manager: str | None = None
    """Field manager that wrote it last; None where the API does not say."""

    @property
    def name(self) -> str:
        """Its name in its namespace."""
        return self.object.split("/", 2)[2]


class Tombstone(Struct, frozen=True, kw_only=True):
    """A row of `tombstones`."""

    object: str
    partition: int
    uid: str
    version: int
    sequence: int


class UnreadableRow(Struct, frozen=True, kw_only=True):
    """A row of `unreadable`: a record that was skipped."""

    partition: int
    place: str
    """The object; the resource, if not even the object's name can be read; the subject of a control record."""
    sequence: int
    error: str
    recorded_at: datetime


class SyncRow(Struct, frozen=True, kw_only=True):
    """A list of a resource as one partition saw it begin or end."""

    partition: int
    resource: str
    unfinished: str = "{}"
    """Lists that began and have not finished, with the sequence of their beginning, as JSON."""
    started_sequence: int = 0
    finished_sequence: int = 0
    namespaces: str = ""
    """That are listed and watched, with commas between; empty: all."""
    api_version: str = ""
    """Version in which it is recorded, the newest that a list was of; empty where none says."""
    version: int = 0
    gap_sequence: int = 0
    heard_at: datetime | None = None
    error: str = ""
    """Why nothing is heard of the resource now; empty while something is."""

    @property
    def begun(self) -> dict[str, int]:
        """Sequence at which each list began that is under way, by its id."""
        return msgspec.json.decode(self.unfinished, type=dict[str, int])

    @property
    def is_stale(self) -> bool:
        """Whether it was listed once, and is listed again, history is missing since, or nothing is heard of it now."""
        if self.finished_sequence == 0:
            return False
        return bool(self.error) or self.finished_sequence < max(self.started_sequence, self.gap_sequence)


def contact_of(rows: Sequence[SyncRow], partitions: int) -> Contact:
    """How far the watch of a resource can be trusted, as all partitions have seen it."""
    heard_at = max((row.heard_at for row in rows if row.heard_at is not None), default=None)
    listed = sum(row.finished_sequence > 0 for row in rows)
    return Contact(listed < partitions or any(row.is_stale for row in rows), heard_at)


class Verdict(Struct, frozen=True, kw_only=True):
    """The result of an evaluation: in the row of the level, in the stored decision, and in comparisons."""

    status: str
    reason: str = ""
    round: int = 0
    """Reconcile calls so far."""
    desired: bytes | None = None
    actual: bytes | None = None
    drift: bytes | None = None
    """JSON: keys that are missing, extra, changed; None: nothing differs."""

    @property
    def differing(self) -> dict[str, list[str]]:
        """The drift, decoded."""
        return _DRIFT.decode(self.drift) if self.drift else {}

    @property
    def verdict(self) -> "Verdict":
        """The result alone, to be compared with another."""
        return Verdict(**{name: getattr(self, name) for name in Verdict.__struct_fields__})


_DRIFT: Final = msgspec.json.Decoder(dict[str, list[str]])


class LevelRow(Verdict, frozen=True, kw_only=True, gc=False):
    """A row of `levels`; see the table for what each column means."""

    view: str
    parent: str
    partition: int
    parent_uid: str
    attempts: int = 0
    evaluations: int = 0
    inputs: str = ""
    fields_read: bytes | None = None
    """Reads of a parent that the view takes as a plain mapping; None for a typed one."""
    reads_digest: str = ""
    versions_digest: str = ""
    decided_inputs: str = ""
    repeats: str | None = None
    cause: int = 0
    suppressed: str = ""
    recheck_at: datetime | None = None
    evaluated_at: datetime | None = None
    decided_at: datetime | None = None
    """When `recheck_at` was said."""
    since: datetime | None = None
    """When it got its status; None if unknown."""
    position: int | None = None
    """Position of a call without records, whose object is held; None: it is a level."""

    def unknown(self, reason: str) -> "LevelRow":
        """The level as nothing is known of it any more but its round, so that no key is used twice."""
        return replace(self, reason=reason, **UNKNOWN)


UNKNOWN: Final[Mapping[str, Any]] = {
    "status": "blocked",
    "desired": None,
    "actual": None,
    "drift": None,
    "attempts": 0,
    "inputs": "",
    "fields_read": None,
    "reads_digest": "",
    "versions_digest": "",
    "decided_inputs": "",
    "recheck_at": None,
    "evaluated_at": None,
    "decided_at": None,
    "since": None,
}
"""What the row of a level that is `unknown` has, besides the reason; the other columns stay."""


class Bucket(Struct, frozen=True):
    """Values under one key, in the order of the objects that gave them, and the sequence that changed the key last."""

    version: int
    """-1: the key has no version row yet."""
    values: tuple[bytes, ...] = ()
    errors: tuple[bytes, ...] = ()
    """Name and error of each object that the index fails for, and that has old entries here or may belong here."""


class WholeIndex(Struct, frozen=True):
    """Every bucket of an index, and the version of each partition's part."""

    versions: dict[str, int]
    buckets: dict[str, tuple[bytes, ...]]
    errors: tuple[bytes, ...] = ()
    """The errors of all its buckets, each object once."""
