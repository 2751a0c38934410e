"""Decisions as values: inputs, results, and the intents that they ask for."""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Final, TypeAlias

from msgspec import Struct

from levelog.levels import LevelStatus
from levelog_base.wire.canonical import digest
from levelog_store.fold.changes import Causes
from levelog_store.rows import IndexKey, LevelRow, Verdict, ViewParent

UNDONE: Final = "undone"
"""Begins the reason of a level whose writes somebody undoes again and again."""


class PendingWake(Struct, frozen=True, kw_only=True):
    """A row of `wakeups`: a level that is to be decided on, at once or at `due_at`."""

    view: str
    parent: str
    partition: int
    cause: int
    causes: str = ""
    generation: int
    due_at: datetime | None


class StoredIntent(Struct, frozen=True, kw_only=True):
    """A write that was decided, and how far it is."""

    key: str
    view: str
    parent: str
    verb: str
    target: str
    is_watched: bool
    state: str
    error: str = ""
    result_uid: str = ""
    result_version: int = 0
    """Version of the target, as the API answered."""


class OpenIntent(StoredIntent, frozen=True, kw_only=True, omit_defaults=True):
    """An intent of a level's last round, next to what the tables hold of its target now."""

    found_elsewhere: ClassVar[frozenset[str]] = frozenset(
        {"was_claimed", "answer", "request", "buried_version"}
        | {"shown_uid", "shown_version", "shown_is_deleting", "shown_manager"}
    )
    """Fields that are no columns of `intents`."""
    is_folded: bool
    outcome: str = ""
    """As its receipt has it; empty: there is none."""
    answer: int = 0
    """HTTP status that refused it, if it failed; 0: none."""
    request: str = ""
    """What it asks an effect for, by `request_of`."""
    attempts: int = 0
    was_claimed: bool = False
    """An actuator has claimed it at least once."""
    observed_version: int | None = None
    """Version in the observation of the target; 0: it was gone; None: no observation."""
    observed_at: datetime | None = None
    shown_uid: str | None = None
    shown_version: int | None = None
    shown_is_deleting: bool | None = None
    shown_manager: str = ""
    """Who wrote the target last."""
    buried_version: int | None = None
    """Version of the target's tombstone."""


def next_attempt(state: str, owner: str, due_at: datetime | None) -> datetime | None:
    """When a write is tried again; None: it is not waiting for that."""
    return due_at if state in ("pending", "claimed") and not owner else None


class PastIntent(StoredIntent, frozen=True, kw_only=True):
    """An intent as it is looked back at."""

    round: int
    ordinal: int
    """Order within the round."""
    target_uid: str
    """Incarnation that the decision saw; empty: none."""
    attempts: int
    decided_at: datetime
    owner: str = ""
    """Process that has claimed it."""
    due_at: datetime | None = None
    receipt: bytes | None
    """ReceiptNoted as JSON, once there is one."""

    @property
    def next_at(self) -> datetime | None:
        """When it is tried again; None: it is not waiting for that."""
        return next_attempt(self.state, self.owner, self.due_at)


class Asked(Struct, frozen=True, kw_only=True):
    """A write as a decision asked for it."""

    key: str
    verb: str
    target: str
    body: bytes


class Sendable(Asked, frozen=True, kw_only=True):
    """The same, with all that an actuator needs to send it."""

    round: int
    api_version: str
    target_uid: str
    """Incarnation that the decision saw; empty: none."""
    target_version: int
    sealed: bytes | None = None
    """The body as it is to be sent, encrypted, if `body` is redacted."""
    options: bytes


def request_of(verb: str, target: str, body: bytes, options: bytes) -> str:
    """Digest of what an intent asks an effect for, the same in every round; empty: it asks the API."""
    return digest(target, body, options) if verb == "call" else ""


class IntentRow(Sendable, frozen=True, kw_only=True):
    """A decided intent, as it is stored."""

    ordinal: int
    """Order within the round."""
    kind: str
    is_watched: bool
    state: str


class Basis(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a decision rests on besides its parent and what its view read: enough to decide again, and alike."""

    folded: tuple[int, ...] = ()
    """Sequence up to which each partition was folded, in the snapshot that the view saw."""
    status: str = "blocked"
    """Status of the level before, as all that follows."""
    round: int = 0
    attempts: int = 0
    decided_inputs: str = ""
    is_due: bool = False
    """The wakeup's time had come."""
    is_asked_for: bool = False
    """Somebody wanted the level to be tried again."""
    repeats: str | None = None
    intents: tuple[OpenIntent, ...] = ()
    """That were under way, or had failed."""
    satisfied: tuple[str, ...] = ()
    """Keys of the new intents whose targets held their fields already, when those were looked up after the round."""
    level_statuses: dict[str, LevelStatus] = {}
    """How the levels stood that its view is given, by view."""
    others: dict[str, dict[str, LevelStatus]] = {}
    """How those stood that its view looked up, by object and view."""
    called: dict[str, str] = {}
    """Keys of the last calls that took place of the effects that the new intents call, by target."""
    progressed: bool = False
    """All that the view saw change was what writes under way of the level lead to, so that the others stayed."""


class Read(Struct, frozen=True):
    """A key that a view read."""

    index: str
    key: str
    version: int
    """Sequence of the record that had changed it last; 0 or less: none had."""
    content: bytes | None
    """JSON array of the values; None if unchanged since the last decision, or too long to be stored."""


class Decision(Verdict, frozen=True, kw_only=True):
    """A row of `decisions`: one evaluation of a view for a parent, or another status without one."""

    ordinal: int
    """Orders the decisions on a level, and roughly all of them."""
    view: str
    """Operator and view, `webs/pods`."""
    parent: str
    parent_uid: str
    parent_sequence: int
    """Record that showed the parent as it was evaluated."""
    cause: int
    """Newest record that caused it."""
    causes: Causes
    """All records that caused it; none if its time had come, or if the cause was no record."""
    suppressed: Causes
    """Records that asked since the decision before, and changed nothing that the view reads."""
    is_called: bool
    """The view was called; else there are no reads, and desired and actual are as before."""
    reads: list[Read]
    intents: list[str]
    """Idempotency keys."""
    fingerprint: str
    decided_at: datetime
    basis: Basis
    """Its inputs besides parent and reads."""

    @property
    def identity(self) -> tuple[str, str, int]:
        """View, parent and ordinal."""
        return self.view, self.parent, self.ordinal

    @property
    def sequence(self) -> int:
        """The last record that it can have seen."""
        return max(self.cause, self.parent_sequence, *(read.version for read in self.reads))

    @property
    def seen_to(self) -> int:
        """The last record that was folded anywhere when it was made."""
        return max(self.basis.folded, default=0)

    @property
    def versions(self) -> dict[IndexKey, int]:
        """Version of each key that was read."""
        return {(read.index, read.key): read.version for read in self.reads}


WithWrites: TypeAlias = tuple[Decision, Sequence[Asked]]
"""A decision, and the writes that it asked for, as far as they are kept."""


class Decided(Struct, frozen=True, kw_only=True):
    """What one decision writes."""

    wake: PendingWake
    level: LevelRow
    due_at: datetime | None = None
    """When to look again although nothing changed; None: not."""
    versions: dict[IndexKey, int] = {}
    """Version of each key read."""
    dependencies_added: set[IndexKey] = set()
    dependencies_removed: set[IndexKey] = set()
    intents: list[IntentRow] = []
    settled: list[str] = []
    """Keys of intents that the log has shown to be done."""
    withdraws: bool = False
    """All unclaimed intents of the level are superseded."""
    withdrawn: list[str] = []
    """Keys of unclaimed intents that are superseded; the decision holds only if none of them is claimed meanwhile."""
    continued: list[str] = []
    """Keys of unclaimed calls that go on as intents of the new round, likewise."""
    is_evaluated: bool = False
    """The view was called."""
    is_recorded: bool = False
    """It goes into the history: the view was called, or the status is another."""
    is_news: bool = False
    """Who looks up the level sees something else now."""
    seen_at: datetime | None = None
    """When the level was looked at, the `decided_at` of the row; None: when it was evaluated."""
    parent_sequence: int = 0
    basis: Basis = Basis()
    contents: dict[IndexKey, bytes] = {}
    """The values under keys, as JSON, if new and short."""
    is_made: bool = False
    """Whether levelog has made the view of another function."""
    suppressed: str = ""
    """Records that asked since the decision before, and changed nothing that the view reads."""
    is_put_off: bool = False
    """The view is called at `due_at` for the records that ask now."""

    @property
    def name(self) -> ViewParent:
        """View and parent."""
        return self.wake.view, self.wake.parent
