"""What becomes of one level, given what was read: pure, shared by live processors, replay and tests."""

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from levelog.handlers.owned import ChildrenLevel
from levelog.levels import Drift, Level
from levelog.wire.canonical import canonical, digest
from levelog.wire.objects import field_manager
from levelog_processors.decide.lookups import sight
from levelog_processors.decide.settling import AT_ONCE, CALM, GONE, Repeats, is_settled
from levelog_processors.decide.views import Evaluation
from levelog_processors.program import BoundView
from levelog_store.decide.decisions import Basis, Decided, IntentRow, OpenIntent, PendingWake
from levelog_store.fold.changes import added, read_causes
from levelog_store.rows import IndexKey, LevelRow, StoredObject

FIRST_BACKOFF: Final = timedelta(seconds=1)
LONGEST_BACKOFF: Final = timedelta(minutes=5)


def backoff(attempts: int) -> timedelta:
    """Time until the next round if nothing that is read changes: doubled by each round, five minutes at the most."""
    doubled: timedelta = FIRST_BACKOFF * 2 ** min(max(attempts - 1, 0), 20)
    return min(doubled, LONGEST_BACKOFF)


class Case:
    """One wakeup with everything known about its level before the decision."""

    def __init__(
        self,
        wake: PendingWake,
        view: BoundView,
        parent: StoredObject,
        before: LevelRow | None,
        intents: Sequence[OpenIntent],
        *,
        inputs: str,
        reads: str,
        dependencies: set[IndexKey],
        now: datetime,
        folded: tuple[int, ...] = (),
    ) -> None:
        """`now`: what the level's functions see as such; `folded`: how far each partition was, in what they see."""
        self.now = now
        self.folded = folded
        self.wake = wake
        self.view = view
        self.parent = parent
        is_same = before is not None and before.parent_uid == parent.uid
        self.before = (
            before
            if is_same and before
            else LevelRow(
                view=wake.view, parent=wake.parent, partition=wake.partition, parent_uid=parent.uid, status="blocked"
            )
        )
        self.inputs = inputs
        self.dependencies = dependencies
        self._intents = intents
        self.settled = [i.key for i in intents if i.state == "written" and is_settled(i)]
        self.unsettled = [i for i in intents if not is_settled(i)]
        self._pending = [i.key for i in intents if i.state == "pending"]
        self.failures = [i for i in intents if i.outcome in ("failed", "conflict") and i.is_folded]
        self.is_due = wake.due_at is not None
        self.is_new = self.before.evaluations == 0
        self.is_changed = self.is_new or inputs != self.before.inputs or reads != self.before.reads
        self.is_deleting = parent.is_deleting and not view.handler.deleting
        asked = [cause for text in (wake.causes, self.before.suppressed) for cause in read_causes(text).sequences]
        self._since = min(asked, default=sys.maxsize)
        """The first record that asked since the decision before."""
        repeats = Repeats.read(self.before.repeats)
        is_calm = self.before.status == "in_sync" and repeats is not None and now - repeats.at >= CALM
        self.repeats = None if is_calm else repeats
        self.evaluation: Evaluation | None = None
        self.wanted: list[Any] = []
        self.is_called = True
        """Whether the reconcile function could be called, which makes it a round."""
        self.error = ""

    @property
    def has_stored_drift(self) -> bool:
        """Tell whether the level differed when it was evaluated last."""
        return self.before.drift is not None and self.before.status != "in_sync"

    @property
    def needs_evaluation(self) -> bool:
        """Tell whether the view has to be called: something it read changed, its time came, or a round is owed."""
        if self.is_deleting:
            return False
        if self.is_changed or self.is_due:
            return True
        seen = digest(self.before.inputs, self.before.reads)
        return (
            self.has_stored_drift and not self.unsettled and self.before.decided_inputs != seen and self._has_reconcile
        )

    @property
    def _has_reconcile(self) -> bool:
        return self.view.reconcile is not None

    @property
    def seen(self) -> str:
        """Digest of everything that the evaluation saw."""
        if self.evaluation is None:
            return digest(self.before.inputs, self.before.reads)
        return digest(self.evaluation.inputs or self.inputs, self.seen_reads)

    @property
    def seen_reads(self) -> str:
        """Digest of what the evaluation read, as far as it counts."""
        if self.evaluation is None:
            return self.before.reads
        desired = self.evaluation.desired if self.level else self.before.desired
        return self.evaluation.reads.digest(sight(self.view, self.parent.uid, desired))

    def is_news(self, place: IndexKey, version: int) -> bool:
        """Tell whether a key may hold something else than when the view was called last, which has woken it then."""
        return place not in self.dependencies or version >= self._since

    @property
    def level(self) -> Level[Any] | None:
        """What the view returned, if it was called and did not raise."""
        return self.evaluation.level if self.evaluation else None

    @property
    def withdrawn(self) -> list[str]:
        """Intents that nobody has claimed, once the view has seen something else than they were decided on."""
        is_outdated = self.level is not None and self.seen != self.before.decided_inputs
        return self._pending if is_outdated else []

    @property
    def under_way(self) -> list[OpenIntent]:
        """Unsettled intents that the decision leaves as they are, and has to wait for."""
        withdrawn = self.withdrawn
        return [intent for intent in self.unsettled if intent.key not in withdrawn]

    @property
    def must_act(self) -> bool:
        """Tell whether to call the reconcile function: drift, nothing under way, and something new or a tick."""
        if self.level is None or not self.level.drift or self.under_way or not self._has_reconcile:
            return False
        return self.is_due or (self.seen != self.before.decided_inputs and self.rests_until is None)

    @property
    def rests_until(self) -> datetime | None:
        """When the next round comes, if the ones before were undone each time: somebody else writes the same fields."""
        last = self.repeats
        if self.level is None or last is None or last.count < AT_ONCE or last.of != self.state:
            return None
        until = last.at + backoff(last.count - AT_ONCE + 1)
        return until if until > self.now else None

    @property
    def state(self) -> str:
        """Digest of what is desired, and what is there."""
        if self.evaluation is None:
            return digest(self.before.desired or b"", self.before.actual or b"")
        return digest(self.evaluation.desired or b"", self.evaluation.actual or b"")

    @property
    def undone(self) -> str:
        """How often the last rounds were undone, and by whom."""
        own = field_manager(self.view.operator)
        others = [i.held_manager for i in self._intents if i.held_manager not in ("", own)]
        by = f", the last time by {others[0]}" if others else ""
        return f"written and undone {self.repeats.count if self.repeats else 0} times{by}"

    def basis(self, rows: Sequence[IntentRow]) -> Basis:
        """What the decision rests on, to be kept with it."""
        counts = {intent.key for intent in (*self.unsettled, *self.failures)}
        return Basis(
            folded=self.folded,
            status=self.before.status,
            round=self.before.round,
            attempts=self.before.attempts,
            decided_inputs=self.before.decided_inputs,
            is_due=self.is_due,
            repeats=self.before.repeats,
            intents=tuple(intent for intent in self._intents if intent.key in counts),
            satisfied=tuple(row.key for row in rows if row.state == "satisfied"),
        )


def conclude(case: Case, rows: list[IntentRow], now: datetime) -> Decided:
    """Put the outcome of a case into rows."""
    if case.is_deleting:
        return _concluded(case, status="deleting", reason="the parent has a deletionTimestamp", withdraws=True)
    if case.evaluation is not None and case.evaluation.blocked:
        return _concluded(case, status="blocked", reason=case.evaluation.blocked)
    if case.evaluation is None and case.before.status == "blocked":  # nothing new: what blocks it still does
        return _concluded(case, status="blocked", reason=case.before.reason)
    if case.evaluation is not None and case.evaluation.error:
        return _concluded(case, status="failed", reason=case.evaluation.error)
    if case.error:  # the reconcile function raised; its round counts, so that it is not called in a circle
        due_at = now + backoff(_attempts(case))
        return _concluded(case, status="failed", reason=case.error, has_acted=True, due_at=due_at)
    if case.must_act:
        is_sent = any(row.state == "pending" and row.verb != "event" for row in rows)  # nobody waits for Events
        next_at = None if is_sent else now + backoff(_attempts(case))
        status = "settling" if is_sent else "drifting"
        waits = case.level.waits if isinstance(case.level, ChildrenLevel) else ""
        reason = "" if is_sent else waits or "the last round had nothing to write"
        return _concluded(
            case, status=status, reason=reason, has_acted=True, has_written=is_sent, due_at=next_at, rows=rows
        )
    drifts = bool(case.level.drift) if case.level is not None else case.has_stored_drift
    recheck_at = case.level.recheck_at if case.level is not None else case.before.recheck_at
    if not drifts and case.level is None and case.before.status == "failed":  # nothing new: the error still stands
        return _concluded(case, status="failed", reason=case.before.reason, due_at=recheck_at)
    if under_way := case.under_way:
        return _concluded(case, status="settling", reason=_wait(under_way), due_at=recheck_at)
    if not drifts:
        return _concluded(case, status="in_sync", reason="", due_at=recheck_at)
    if until := case.rests_until:
        reason = f"{case.undone}; the next round is at {until:%H:%M:%S} UTC"
        return _concluded(case, status="drifting", reason=reason, due_at=until)
    if case.failures:
        is_final = all(intent.outcome == "failed" for intent in case.failures)
        retry_at = recheck_at if is_final else _later(case, now)
        return _concluded(case, status="failed", reason=case.failures[0].error, due_at=retry_at)
    if case.view.reconcile is None:
        return _concluded(case, status="drifting", reason="", due_at=recheck_at)
    reason = "the last round did not close it"
    return _concluded(case, status="drifting", reason=reason, due_at=_later(case, now))


def _wait(under_way: Sequence[OpenIntent]) -> str:
    """What a level waits for; of a write that the log fails to show, what the API had of it."""
    intent = next((each for each in under_way if each.sighted_at is not None), under_way[0])
    if intent.sighted_at is None:
        return f"waits for {intent.target}"
    had = "was gone" if intent.sighted_version == GONE else f"had version {intent.sighted_version}"
    return (
        f"waits for {intent.target}: written as version {intent.result_version}, which the log does not show; "
        f"at {intent.sighted_at:%H:%M:%S} UTC it {had} at the API: is ingest behind?"
    )


def _attempts(case: Case) -> int:
    return case.before.attempts + 1 if case.seen == case.before.decided_inputs else 1


def _later(case: Case, now: datetime) -> datetime:
    planned = case.before.recheck_at
    return planned if planned is not None and planned > now else now + backoff(case.before.attempts)


def _concluded(
    case: Case,
    *,
    status: str,
    reason: str,
    due_at: datetime | None = None,
    has_acted: bool = False,
    has_written: bool = False,
    rows: list[IntentRow] | None = None,
    withdraws: bool = False,
) -> Decided:
    before, evaluation, level = case.before, case.evaluation, case.level
    reads = (
        set(evaluation.reads.versions) if evaluation else (set[IndexKey]() if case.is_deleting else case.dependencies)
    )
    is_kept = evaluation is not None or status != before.status
    row = LevelRow(
        view=before.view,
        parent=before.parent,
        partition=before.partition,
        parent_uid=before.parent_uid,
        status=status,
        reason=reason,
        desired=evaluation.desired if evaluation and level else before.desired,
        actual=evaluation.actual if evaluation and level else before.actual,
        drift=_drift(case),
        round=before.round + (has_acted and case.is_called),
        attempts=_attempts(case) if has_acted else before.attempts,
        evaluations=before.evaluations + (evaluation is not None),
        inputs=_inputs(case),
        looked_at=evaluation.looked_at if evaluation and evaluation.looked_at else before.looked_at,
        reads=case.seen_reads,
        decided_inputs=_decided_inputs(case, has_acted=has_acted),
        repeats=_repeats(case, has_written=has_written),
        cause=max(case.wake.cause, before.cause),
        suppressed="" if is_kept else added(before.suppressed, case.wake.causes),
        recheck_at=due_at,
        evaluated_at=case.now if evaluation else before.evaluated_at or case.now,
    )
    return Decided(
        wake=case.wake,
        level=row,
        status_before=before.status,
        due_at=due_at,
        versions=dict(evaluation.reads.versions) if evaluation else {},
        dependencies_added=reads - case.dependencies,
        dependencies_removed=case.dependencies - reads,
        intents=rows or [],
        settled=case.settled,
        withdraws=withdraws,
        withdrawn=case.withdrawn,
        is_evaluated=evaluation is not None,
        is_kept=is_kept,
        decided_at=case.now,
        parent_sequence=case.parent.sequence,
        basis=case.basis(rows or []),
        contents=evaluation.reads.held(case.is_news) if evaluation else {},
        suppressed=before.suppressed,
    )


def _inputs(case: Case) -> str:
    if case.evaluation is not None:
        return case.evaluation.inputs or case.inputs
    return case.inputs if case.is_deleting else case.before.inputs


def _drift(case: Case) -> bytes | None:
    if case.level is not None:
        return _encoded(case.level.drift)
    has_raised = case.evaluation is not None and case.evaluation.error
    return None if has_raised else case.before.drift


def _decided_inputs(case: Case, *, has_acted: bool) -> str:
    """What the last round was decided on; forgotten once something else was seen, so that a return to it is news."""
    if has_acted:
        return case.seen
    if case.evaluation is not None and case.evaluation.blocked:
        return case.before.decided_inputs
    return case.before.decided_inputs if case.seen == case.before.decided_inputs else ""


def _repeats(case: Case, *, has_written: bool) -> str | None:
    last = case.repeats
    if has_written:
        first = Repeats(of=case.state, count=1, at=case.now)
        return (first if last is None else last.then(case.state, case.now)).text
    return None if last is None else last.text


def _encoded(drift: Drift) -> bytes | None:
    if not drift:
        return None
    return canonical({name: sorted(map(_shown, keys)) for name, keys in drift.parts() if keys})


def _shown(key: Any) -> str:
    return key if isinstance(key, str) else msgspec.json.encode(key).decode()
