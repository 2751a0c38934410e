"""Rows as the processors handle them, and what a decision writes."""

from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct, field

ViewParent = tuple[str, str]
"""View and parent: what names a level."""

IndexKey = tuple[str, str]
"""Index and canonical key: what names a bucket of entries."""

Input = tuple[int, str]
"""Partition and resource: what names a list as one partition saw it."""

ERRORS: Final = "!"
"""Key of the entries that stand for objects which an index leaves out by error; no canonical key begins so."""


class HeldObject(Struct, frozen=True):
    """What the fold holds of an object before a batch."""

    uid: str
    version: int


class HeldTombstone(Struct, frozen=True):
    """Up to which version records of a deleted object are late."""

    uid: str
    version: int


class Entry(Struct, frozen=True):
    """One value that an object gives under a key of an index."""

    index: str
    key: str
    ordinal: int
    value: bytes
    error: str = ""
    expires_at: datetime | None = None


class ExpiredEntry(Struct, frozen=True):
    """An entry whose time may be over, with the object that gave it and the partition of that."""

    object: str
    partition: int
    entry: Entry


class HeldLevel(Struct, frozen=True):
    """What a level was evaluated on: the parent's uid, the digest of what the view saw of it, and where it looked."""

    parent_uid: str
    inputs: str
    looked_at: bytes | None = None


class Held(Struct):
    """What the tables hold of the objects of a batch."""

    objects: dict[str, HeldObject] = field(default_factory=dict[str, HeldObject])
    tombstones: dict[str, HeldTombstone] = field(default_factory=dict[str, HeldTombstone])
    entries: dict[str, list[Entry]] = field(default_factory=dict[str, list[Entry]])
    """By object."""
    levels: dict[ViewParent, HeldLevel] = field(default_factory=dict[ViewParent, HeldLevel])
    """Those whose parent is in the batch."""
    syncs: dict[Input, "SyncRow"] = field(default_factory=dict[Input, "SyncRow"])
    """Of all partitions and resources, if the batch has marks."""
    times: dict[int, datetime] = field(default_factory=dict[int, datetime])
    """Time of each partition, if entries expire."""
    expired: list[ExpiredEntry] = field(default_factory=list[ExpiredEntry])
    """Entries of the batch's partitions whose time may be over, of any object."""


class StoredObject(Struct, frozen=True, kw_only=True):
    """A row of `objects`."""

    object: str
    partition: int
    resource: str
    namespace: str
    name: str
    uid: str
    version: int
    sequence: int
    is_deleting: bool
    body: bytes
    recorded_at: datetime | None = None
    """Time of the record that showed this version first."""
    manager: str | None = None
    """Field manager that wrote it last; None where the API does not say."""


class Tombstone(Struct, frozen=True, kw_only=True):
    """A row of `tombstones`."""

    object: str
    partition: int
    uid: str
    version: int
    sequence: int
    deleted_at: datetime


class UnreadableRow(Struct, frozen=True, kw_only=True):
    """A row of `unreadable`."""

    partition: int
    place: str
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
    version: int = 0
    gap_sequence: int = 0
    heard_at: datetime | None = None
    error: str = ""
    """Why nothing is heard of the resource now; empty while something is."""

    def begun(self, sync_id: str) -> int | None:
        """Sequence at which a list that is under way began."""
        return msgspec.json.decode(self.unfinished, type=dict[str, int]).get(sync_id)

    @property
    def is_stale(self) -> bool:
        """Whether it was listed once, and is listed again, history is missing since, or nothing is heard of it now."""
        if self.finished_sequence == 0:
            return False
        return bool(self.error) or self.finished_sequence < max(self.started_sequence, self.gap_sequence)


class PendingWake(Struct, frozen=True, kw_only=True):
    """A row of `wakeups` whose time has come."""

    view: str
    parent: str
    partition: int
    cause: int
    causes: str = ""
    generation: int
    due_at: datetime | None


class LevelRow(Struct, frozen=True, kw_only=True):
    """A row of `levels`; see the table for what each column means."""

    view: str
    parent: str
    partition: int
    parent_uid: str
    status: str
    reason: str = ""
    desired: bytes | None = None
    actual: bytes | None = None
    drift: bytes | None = None
    round: int = 0
    attempts: int = 0
    evaluations: int = 0
    inputs: str = ""
    looked_at: bytes | None = None
    """Observations of a parent that the view takes as a plain mapping; None for a typed one."""
    reads: str = ""
    decided_inputs: str = ""
    repeats: str | None = None
    cause: int = 0
    suppressed: str = ""
    recheck_at: datetime | None = None
    evaluated_at: datetime | None = None


class Bucket(Struct, frozen=True):
    """Values under one key, in the order of the objects that gave them, and the sequence that changed the key last."""

    version: int
    """-1: the key has no version row yet."""
    values: tuple[bytes, ...] = ()


class WholeIndex(Struct, frozen=True):
    """Every bucket of an index, and the version of each partition's part."""

    versions: dict[str, int]
    buckets: dict[str, tuple[bytes, ...]]


class OpenIntent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An intent of a level's last round, next to what the tables hold of its target now."""

    view: str
    parent: str
    key: str
    state: str
    verb: str
    target: str
    is_watched: bool
    is_folded: bool
    error: str = ""
    outcome: str = ""
    result_uid: str = ""
    result_version: int = 0
    sighted_version: int | None = None
    """Version that the API had when the target was looked at; 0: it was gone; None: nobody looked."""
    sighted_at: datetime | None = None
    held_uid: str | None = None
    held_version: int | None = None
    held_is_deleting: bool | None = None
    held_manager: str = ""
    """Who wrote the target last."""
    buried_version: int | None = None
    """Version of the target's tombstone."""


class Basis(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a decision rests on besides its parent and what its view read: enough to decide again, and alike."""

    folded: tuple[int, ...] = ()
    """Sequence up to which each partition was folded, in the snapshot that the view saw."""
    status: str = "blocked"
    """Of the level before, as all that follows."""
    round: int = 0
    attempts: int = 0
    decided_inputs: str = ""
    is_due: bool = False
    """The wakeup's time had come."""
    repeats: str | None = None
    intents: tuple[OpenIntent, ...] = ()
    """That were under way, or had failed."""
    satisfied: tuple[str, ...] = ()
    """Keys of the new intents whose targets held their fields already, when those were looked up after the round."""


class Target(Struct, frozen=True, kw_only=True):
    """What is held of an intent's target."""

    uid: str
    version: int
    is_deleting: bool
    body: bytes


class IntentRow(Struct, frozen=True, kw_only=True):
    """A decided intent, as it is stored."""

    key: str
    round: int
    ordinal: int
    verb: str
    target: str
    api_version: str
    kind: str
    target_uid: str
    target_version: int
    is_watched: bool
    body: bytes
    sealed: bytes | None = None
    options: bytes
    state: str


class Decided(Struct, kw_only=True):
    """What one decision writes."""

    wake: PendingWake
    level: LevelRow
    status_before: str = ""
    due_at: datetime | None = None
    """When to look again although nothing changed; None: not."""
    versions: dict[IndexKey, int] = field(default_factory=dict[IndexKey, int])
    """Version of each key read."""
    dependencies_added: set[IndexKey] = field(default_factory=set[IndexKey])
    dependencies_removed: set[IndexKey] = field(default_factory=set[IndexKey])
    intents: list[IntentRow] = field(default_factory=list[IntentRow])
    settled: list[str] = field(default_factory=list[str])
    """Keys of intents that the log has shown to be done."""
    withdraws: bool = False
    """All unclaimed intents of the level are superseded."""
    withdrawn: list[str] = field(default_factory=list[str])
    """Keys of unclaimed intents that are superseded; the decision holds only if none of them is claimed meanwhile."""
    is_evaluated: bool = False
    """The view was called."""
    is_kept: bool = False
    """It is kept: the view was called, or the status is another."""
    decided_at: datetime | None = None
    """None: when the level was evaluated."""
    parent_sequence: int = 0
    basis: Basis = Basis()
    contents: dict[IndexKey, bytes] = field(default_factory=dict[IndexKey, bytes])
    """What keys held, as JSON, where that is news and short."""
    suppressed: str = ""
    """Records that asked since the decision before, and changed nothing that the view reads."""
