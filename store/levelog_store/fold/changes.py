"""What a fold reads and changes, as values; the causes of a wakeup, as text."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import ReceiptNoted, TargetObserved
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


class PriorState(Struct):
    """What State has of the objects of a batch before it is folded."""

    objects: dict[str, StoredObject] = {}
    tombstones: dict[str, Tombstone] = {}
    entries_of: Callable[[str], Collection[Entry]] = lambda _: ()
    """Entries of an object."""
    levels: dict[ViewParent, LevelRow] = {}
    rounds: dict[ViewParent, tuple[str, int]] = {}
    """Uid of the parent and round of the levels whose calls the batch has receipts of."""
    syncs: dict[Input, SyncRow] = {}
    """Lists of all partitions and resources, if the batch has marks."""
    api_versions: Mapping[Input, str] = {}
    """Versions in which resources are recorded, by partition; not there: nobody says."""
    times: dict[int, datetime] = {}
    """Time of each partition, if entries expire."""
    expired: Sequence[tuple[str, Entry]] = ()
    """Entries whose time may be over, with the objects that gave them."""


class Checkpoint(Struct, frozen=True):
    """How far a partition is folded: the last sequence, the last record of its own with its id, and the newest time."""

    sequence: int
    record_sequence: int
    record_id: str
    time: datetime | None = None


class Wake(Struct, frozen=True):
    """A reason to look at a level again: its parent's partition, and the records that ask for it, at least one."""

    partition: int
    causes: tuple[int, ...]
    is_echo: bool = False
    """All that they show is the target of a write of the level that is under way."""
    is_end: bool = False
    """The same, or that the write is done."""

    @property
    def cause(self) -> int:
        """The newest of them."""
        return max(self.causes)


class FoldedReceipt(Struct, frozen=True, kw_only=True):
    """A receipt that came back through the log."""

    record: ReceiptNoted
    sequence: int
    has_view: bool = True
    """The code still has the view whose level decided the intent."""

    @property
    def level(self) -> ViewParent:
        """View and parent."""
        return self.record.view, str(self.record.parent)


class Replaced(Struct, frozen=True):
    """A list that is next replaces all that is held of a resource, as one partition was told."""

    partition: int
    resource: str
    views: tuple[str, ...]
    """Views that read it."""
    sequence: int
    reason: str
    """Why their levels are blocked until then."""
    is_other_history: bool
    """Versions that are held compare with nothing; else the same version is news."""


class EndedObject(Struct, frozen=True):
    """An object whose row is to stand for it after its deletion, under another name."""

    object: str
    uid: str
    deleted: ObjectKey


class Changes(Struct):
    """Everything that folding one batch changes."""

    checkpoints: dict[int, Checkpoint] = {}
    objects: dict[str, StoredObject] = {}
    tombstones: dict[str, Tombstone] = {}
    seen_again: dict[str, int] = {}
    """Objects that a record showed unchanged, and its sequence: a list that holds them does not sweep them."""
    tombstones_lifted: set[str] = set()
    """Objects that exist again."""
    entries: dict[tuple[str, str, str, int], Entry | None] = {}
    """What there is from now on by index, key, object and ordinal; None: nothing any more."""
    keys: dict[IndexKey, int] = {}
    """Sequence of the record that changed the key last."""
    records_of: dict[str, tuple[int, ...]] = {}
    """Sequences of the records that changed an object, unless that is the one which its row is from."""
    changed_by: dict[IndexKey, set[int]] = {}
    """Sequences of all records that changed a key."""
    wakes: dict[ViewParent, Wake] = {}
    gone: set[ViewParent] = set()
    """Levels whose parent is gone, or is another incarnation now."""
    deletions: list[EndedObject] = []
    """Objects with handlers of their deletion of which no record shows the end, so that the held rows do."""
    calls_forgotten: dict[str, Collection[str]] = {}
    """Parents that are gone, for which what effects did is forgotten: for these uids, or if there are none, for all."""
    receipts: list[FoldedReceipt] = []
    forgotten: dict[str, int] = {}
    """Levels, as messages name them, with a round that a receipt tells of and that is after the held one."""
    observations: list[TargetObserved] = []
    syncs: dict[Input, SyncRow] = {}
    replaced: list[Replaced] = []
    unreadable: dict[tuple[int, str], UnreadableRow] = {}
    """Unreadable records by partition and place."""
    listed: list[tuple[int, list[str]]] = []
    """Partitions whose parents were listed completely, and the views of those parents."""

    def touched(self) -> dict[str, tuple[int, ...]]:
        """Sequences of the changes of each object that changed."""
        changed = {name: (row.sequence,) for name, row in self.objects.items()}
        return changed | {name: (row.sequence,) for name, row in self.tombstones.items()} | self.records_of

    def change_key(self, place: IndexKey, version: int, causes: Sequence[int]) -> None:
        """Note that records changed what is under a key, the last of them at `version`."""
        self.keys[place] = version
        self.changed_by.setdefault(place, set()).update(causes)

    def wake(self, level: ViewParent, wake: Wake) -> None:
        """Note that records ask for a level, besides those that do already."""
        merge_wake(self.wakes, level, wake)


def merge_wake(wakes: dict[ViewParent, Wake], level: ViewParent, wake: Wake) -> None:
    """Add a reason to those that there are."""
    known = wakes.get(level)
    causes = wake.causes if known is None else (*known.causes, *wake.causes)
    wakes[level] = Wake(wake.partition, tuple(sorted(set(causes))))


MOST: Final = 1000
"""Characters. What a text of so many leaves out is nowhere else; the newest record has a column of its own."""


class Causes(Struct, frozen=True):
    """Records that asked, oldest first."""

    sequences: tuple[int, ...]
    has_more: bool
    """There were others, between these and the newest."""


def noted(sequences: Collection[int]) -> str:
    """The text for some records."""
    return ",".join(map(str, sequences))[:MOST]


def added(text: str, more: str) -> str:
    """The text for the records of two texts."""
    return f"{text},{more}"[:MOST] if text and more else text or more


def read_causes(text: str, newest: int = 0) -> Causes:
    """What a text says; `newest` belongs to it even where the text has no room for it."""
    has_more = len(text) >= MOST
    parts = (text.rpartition(",")[0] if has_more else text).split(",")  # the last number may be cut
    found = {int(part) for part in parts if part}
    return Causes(tuple(sorted(found | {newest} if has_more and newest else found)), has_more)
