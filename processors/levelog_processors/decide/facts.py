"""The values that a decision is made from, in the order in which they come about.

`Facts`: what is known before the view is called, and whether it has to be. `Seen`: what the view read and returned.
`Outlook`: both, from which follows whether the reconcile function is called. `Round`: what that asked for. They answer
questions about themselves: no I/O, no clock, no call of a user's function. `decisionrules.py` decides on them.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from msgspec import Struct

from levelog.handlers.injection import Given
from levelog.levels import Level, LevelStatus
from levelog_base.wire.canonical import canonical, digest
from levelog_processors.bound import BoundView
from levelog_processors.decide.settling import AT_ONCE, LOOKS_APART, MANY, Repeats, backoff, is_on_its_way
from levelog_processors.decide.writetargets import Aimed
from levelog_processors.program import MAX_BACKOFF
from levelog_processors.state.writes import is_settled
from levelog_store.decide.decisions import UNDONE, Basis, IntentRow, OpenIntent, PendingWake
from levelog_store.fold.levelwrites import ASKED_FOR
from levelog_store.rows import IndexKey, LevelRow, StoredObject, ViewParent


def digest_with(reads: str, level_statuses: Mapping[str, LevelStatus]) -> str:
    """Digest of what a view read, with how the levels stand that it is given; those may be none."""
    return digest(reads, canonical({v: s.identity for v, s in level_statuses.items()})) if level_statuses else reads


def level_before(wake: PendingWake, parent: StoredObject, row: LevelRow | None, last_round: int = 0) -> LevelRow:
    """The level as it is decided on: one that was never evaluated, if there is none of this incarnation.

    Its rounds go on after the last one of which there are intents: of a parent that had left the view's filters, or
    was not in the log for a while.
    """
    if row is not None and row.parent_uid == parent.uid:
        return row
    return LevelRow(
        view=wake.view,
        parent=wake.parent,
        partition=wake.partition,
        parent_uid=parent.uid,
        status="blocked",
        round=last_round,
    )


class Facts(Struct, frozen=True, kw_only=True, dict=True):
    """One wakeup with everything known about its level before its view is called.

    Of a level at rest, `intents` are read once its view says that something is undone.
    """

    wake: PendingWake
    view: BoundView
    parent: StoredObject
    before: LevelRow
    """The level, as `level_before` gives it."""
    intents: Sequence[OpenIntent] = ()
    inputs: str
    """Identity of what the view sees of the parent now."""
    reads_digest: str
    """Of what the view read the last time, as that is now."""
    versions_digest: str = ""
    """Of how new that is, by `digest_of_versions`."""
    dependencies: frozenset[IndexKey] = frozenset()
    level_statuses: Mapping[str, LevelStatus] = {}
    """How the levels stand that the view is given, by view."""
    now: datetime
    """The time that the level's functions are given."""
    folded: tuple[int, ...] = ()
    """How far each partition was folded in this snapshot."""
    lacks: str = ""
    """In words, objects that an index fails for and that may concern the level, which goes on without them."""
    longest: timedelta = MAX_BACKOFF
    """Between two rounds of a level that stays as it is."""
    progressed: bool | None = None
    """What `Outlook.has_progressed` was, in a decision that is made again."""

    @property
    def name(self) -> ViewParent:
        """View and parent."""
        return self.wake.view, self.wake.parent

    @property
    def newly_settled(self) -> list[str]:
        """Keys of intents that are `written` in SQL, and that the log has shown to be done."""
        return [i.key for i in self.intents if i.state == "written" and is_settled(i)]

    @cached_property
    def unsettled(self) -> list[OpenIntent]:
        """Intents that are pending, claimed, or written and not shown by the log yet."""
        return [i for i in self.intents if not is_settled(i)]

    @cached_property
    def failures(self) -> list[OpenIntent]:
        """Intents that came to nothing, as their receipts say."""
        return [i for i in self.intents if i.outcome in ("failed", "conflict") and i.is_folded]

    @property
    def is_woken_by_time(self) -> bool:
        """Tell whether its `recheck_at` has passed, or somebody has asked: no record alone woke the level."""
        return self.wake.due_at is not None

    @property
    def is_asked_for(self) -> bool:
        """Tell whether somebody wants the level to be tried again."""
        return self.wake.due_at == ASKED_FOR

    @property
    def planned(self) -> datetime | None:
        """The level's `recheck_at`; as long from now as it was, if the clock that said it has been set back since."""
        before = self.before
        if before.recheck_at is None or before.decided_at is None or before.decided_at <= self.now:
            return before.recheck_at
        return self.now + (before.recheck_at - before.decided_at)

    @cached_property
    def is_changed(self) -> bool:
        """Tell whether the view would see something else than when it was called last."""
        before = self.before
        is_other = before.evaluations == 0 or self.inputs != before.inputs or self.reads_digest != before.reads_digest
        return is_other or self._is_from_ahead

    @property
    def _is_from_ahead(self) -> bool:
        """Tell whether the view was given a time that is not there yet, since the clock was set back.

        Not one that has asked for a time, when it is called anyway.
        """
        at = self.before.evaluated_at
        is_later = at is not None and at > self.now and self.before.recheck_at is None
        return is_later and Given.NOW in self.view.handler.given.given.values()

    @property
    def withdraws(self) -> bool:
        """Tell whether the parent is being deleted, and the view does not ask for such."""
        return self.parent.is_deleting and not self.view.handler.deleting

    @property
    def has_stored_drift(self) -> bool:
        """Tell whether the level differed when it was evaluated last; what blocks it since lets nobody know."""
        return self.before.drift is not None and self.before.status not in ("in_sync", "blocked")

    @cached_property
    def seen_before(self) -> str:
        """Digest of everything that the last evaluation saw."""
        return digest(self.before.inputs, self.before.reads_digest)

    @property
    def needs_evaluation(self) -> bool:
        """Tell whether the view has to be called: something it read changed, its time came, or a round is owed."""
        if self.withdraws or self.is_put_off:
            return False
        if self.is_changed or self.is_woken_by_time:
            return True
        is_owed = self.has_stored_drift and self.view.reconcile is not None and not self.unsettled
        return is_owed and (self.before.decided_inputs != self.seen_before or self.is_to_be_noted)

    @property
    def put_off_until(self) -> datetime:
        """When a view is called again while many writes of its level are under way: after as long again."""
        last = min(self.before.evaluated_at or self.now, self.now)  # the clock may have been set back
        return last + max(LOOKS_APART, last - (self.before.since or last))

    @property
    def is_put_off(self) -> bool:
        """Tell whether the view is called later: only what it looked up has changed, and many writes are under way.

        No round can follow then. Each decision keeps all writes under way: a decision after each would keep n² of n.
        """
        is_as_it_was = self.before.status == "settling" and self.inputs == self.before.inputs
        return (
            is_as_it_was and len(self.unsettled) > MANY and not self.is_woken_by_time and self.now < self.put_off_until
        )

    @property
    def is_to_be_noted(self) -> bool:
        """Tell whether the last round of a view that writes once is done, and one has to follow that notes it."""
        is_done = self.before.status == "settling" and not self.unsettled and not self.failures
        return is_done and self.view.handler.writes_once

    @cached_property
    def repeats(self) -> Repeats | None:
        """Rounds so far that somebody undid; none any more if the level has been in sync for long enough since."""
        before, repeats = self.before, Repeats.read(self.before.repeats)
        if repeats is None or self.now < repeats.calm_at:
            return repeats
        was_in_sync = before.status == "in_sync" or before.reason.startswith(UNDONE)
        return repeats.calmed if was_in_sync and before.drift is None else repeats

    def basis(
        self,
        rows: Sequence[IntentRow],
        called: Mapping[str, str],
        looked_up: Mapping[str, Mapping[str, LevelStatus]],
        *,
        has_progressed: bool,
    ) -> Basis:
        """What a decision that asks for these rests on, to be kept with it."""
        counts = {intent.key for intent in (*self.unsettled, *self.failures)}
        return Basis(
            folded=self.folded,
            status=self.before.status,
            round=self.before.round,
            attempts=self.before.attempts,
            decided_inputs=self.before.decided_inputs,
            is_due=self.is_woken_by_time,
            is_asked_for=self.is_asked_for,
            repeats=self.before.repeats,
            intents=tuple(intent for intent in self.intents if intent.key in counts),
            satisfied=tuple(row.key for row in rows if row.state == "satisfied"),
            level_statuses=dict(self.level_statuses),
            others={parent: dict(levels) for parent, levels in looked_up.items()},
            called=dict(called),
            progressed=has_progressed,
        )


class Seen(Struct, frozen=True, kw_only=True):
    """What one call of a view saw and gave, or why the view could not be called."""

    level: Level[Any] | None = None
    """None: it raised, or was not called."""
    desired: bytes = b""
    actual: bytes = b""
    drift: bytes | None = None
    """How they differ; None: not at all."""
    recheck_at: datetime | None = None
    error: str = ""
    blocked: str = ""
    """Why it could not be called, or what it gave does not count: an index fails for an object that concerns it."""
    lacks: str = ""
    """Which objects an index fails for that may concern it, or may not: it goes on, and nothing is deleted."""
    inputs: str
    """Identity of the part of the parent that the view saw."""
    fields_read: bytes | None = None
    """Which fields it read of a parent that it takes as a plain mapping; None for a typed one, or uncalled."""
    reads_digest: str = ""
    """Of the reads that count."""
    versions: Mapping[IndexKey, int] = {}
    """Version of each key read."""
    contents: Mapping[IndexKey, tuple[bytes, ...]] = {}
    """Contents of each key read."""
    looked_up: Mapping[str, Mapping[str, LevelStatus]] = {}
    """How the levels of other parents stood, by parent and view."""


class Round(Struct, frozen=True, kw_only=True):
    """One attempt to call a reconcile function: the intents that it yielded, or why they cannot be sent."""

    intents: Sequence[Aimed] = ()
    rows: Sequence[IntentRow] = ()
    """What is stored of them; empty until `Evaluator.complete`."""
    called: Mapping[str, str] = {}
    """Keys of the last calls that took place, by target, as far as it asks for such."""
    withheld: Sequence[str] = ()
    """Targets that are not deleted while an index fails for an object."""
    error: str = ""
    is_called: bool = True
    """False: the call before still hangs, so that this one was not made: an attempt, but no round."""

    @property
    def is_awaited(self) -> bool:
        """Tell whether the level has a write or call to wait for; it never waits for Events."""
        return any(row.state == "pending" and row.verb != "event" for row in self.rows)


class Outlook(Struct, frozen=True, dict=True):
    """The facts of a level, and what its view returned; None if the view did not have to be called."""

    facts: Facts
    seen: Seen | None = None

    @property
    def is_put_off(self) -> bool:
        """Tell whether the view was not called, and will be later, since many writes are under way."""
        return self.seen is None and not self.facts.withdraws and self.facts.is_put_off

    @property
    def level(self) -> Level[Any] | None:
        """What the view returned, if it was called and did not raise."""
        return self.seen.level if self.seen is not None else None

    @property
    def drift(self) -> bytes | None:
        """How its sides differ; None if they do not, or it has none."""
        return self.seen.drift if self.seen is not None else None

    @property
    def lacks(self) -> str:
        """In words, objects that an index fails for, without which the level goes on."""
        return self.facts.lacks if self.seen is None else self.seen.lacks

    @cached_property
    def digest(self) -> str:
        """Digest of everything that the evaluation saw, this one or the last."""
        return self.facts.seen_before if self.seen is None else digest(self.seen.inputs, self.seen.reads_digest)

    @cached_property
    def state(self) -> str:
        """Digest of desired and actual."""
        both = self.facts.before if self.seen is None else self.seen
        return digest(both.desired or b"", both.actual or b"")

    @property
    def is_written(self) -> bool:
        """Tell whether the API accepted all writes of a view that writes once, in a round for the same state."""
        facts = self.facts
        is_as_decided = facts.view.handler.writes_once and self.digest == facts.before.decided_inputs
        return is_as_decided and facts.before.status != "failed" and not facts.failures

    @property
    def rests_until(self) -> datetime | None:
        """When the next round comes, if the ones before were undone each time: somebody else writes the same fields."""
        last, now = self.facts.repeats, self.facts.now
        if self.level is None or last is None or last.count < AT_ONCE or not last.covers(self.state):
            return None
        if last.at > now:  # the clock was set back
            return None
        until = last.at + backoff(last.count - AT_ONCE + 1, self.facts.longest)
        return until if until > now else None

    @property
    def is_undone(self) -> bool:
        """Tell whether what the last round was decided on is there again."""
        last = self.facts.repeats
        return self.drift is not None and last is not None and last.covers(self.state)

    @cached_property
    def has_progressed(self) -> bool:
        """Tell whether the view saw the same as before, but for what the level's writes lead to."""
        facts, seen, before = self.facts, self.seen, self.facts.before
        if facts.progressed is not None:
            return facts.progressed
        if seen is None or seen.level is None or before.status != "settling" or seen.inputs != before.inputs:
            return False
        # what was never claimed is there because no view has seen anything else since it was decided
        left = facts.intents if any(not each.was_claimed for each in facts.unsettled) else facts.unsettled
        if seen.desired != before.desired or all(each.state == "pending" for each in left):
            return False
        return before.actual is not None and is_on_its_way(seen.desired, before.actual, seen.actual)

    @cached_property
    def to_withdraw(self) -> list[str]:
        """Unclaimed intents, if the view has seen other values than they were decided on, and others than these led to.

        Calls continue while the level rests, since no round decides on them then.
        """
        pending = [each for each in self.facts.intents if each.state == "pending"]
        if not pending or self.level is None or self.has_progressed or self.digest == self.facts.before.decided_inputs:
            return []
        return [each.key for each in pending if not (each.request and self.rests_until)]

    @cached_property
    def under_way(self) -> list[OpenIntent]:
        """Unsettled intents that the decision leaves as they are, and has to wait for."""
        withdrawn = self.to_withdraw
        return [intent for intent in self.facts.unsettled if intent.key not in withdrawn]
