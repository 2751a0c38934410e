"""The decision on one level, as pure functions of values: `must_act`, and once a round is made, `conclude`.

`Facts` (facts.py) say whether the view is called; an `Outlook` adds what that saw. `must_act` tells whether the
reconcile function is called for it; `left_to_write` and `is_withheld`, which of its intents go on. `conclude` turns the
outlook and the round, if there was one, into a `Decided`: the rows to commit. Nothing here calls a user's function,
reads a clock or a table, or writes. There are two times: `facts.now`, that of the batch which looked at the level and
called its functions, and `now`, that of the batch which concludes it: another one if a function outlasted the first.
"""

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from levelog.handlers.callnames import title_of
from levelog.levels import WHOLE
from levelog_base.wire.objects import field_manager
from levelog_processors.decide.facts import Facts, Outlook, Round
from levelog_processors.decide.lookups import contents_to_keep, digest_of_versions
from levelog_processors.decide.settling import FAULT, FAULTS, LOOKS_APART, VIEW_FAULT, Repeats, backoff, pause
from levelog_processors.decide.writetargets import Aimed
from levelog_processors.state.writes import GONE
from levelog_store.decide.decisions import UNDONE, Decided, OpenIntent
from levelog_store.fold.changes import added, read_causes
from levelog_store.rows import IndexKey, LevelRow

_OF_OBJECTS: Final = ("patch", "patch_status")
"""Verbs of intents for an object that has to be there."""
_NOTHING: Final = "the last round had nothing to write"
_LISTS: Final = (
    f"; a list drifts as a whole, under the key {WHOLE!r}: for the drift to name its members, return sets or mappings"
)
CALLS_APART: Final = timedelta(minutes=1)
"""Between two looks at whether a failing call may be withdrawn by now, should the actuator not wake its level."""
HANGS_AT: Final = 3
"""Failed attempts after which the level of a call that keeps its parent from being deleted is `failed`; calls go on."""


def must_act(look: Outlook) -> bool:
    """Tell whether to call the reconcile function: drift, nothing under way, and news, a tick, or a done round to note.

    News alone does not do it while the level rests, since somebody keeps undoing its writes.
    """
    facts = look.facts
    if look.drift is None or look.under_way or facts.view.reconcile is None:
        return False
    if facts.is_woken_by_time:
        return True
    is_as_decided = look.digest == facts.before.decided_inputs
    return facts.is_to_be_noted if is_as_decided else look.rests_until is None


def left_to_write(look: Outlook, wanted: Sequence[Aimed]) -> Sequence[Aimed]:
    """What a round asks for; of a view that writes once, what failed of a last round that was decided on the same."""
    facts = look.facts
    failed = {(each.verb, each.target) for each in facts.failures}
    if not facts.view.handler.writes_once or look.digest != facts.before.decided_inputs or not failed:
        return wanted
    return [each for each in wanted if (each.verb, str(each.target)) in failed]


def is_withheld(look: Outlook, wanted: Aimed) -> bool:
    """Tell whether an intent waits: nothing is deleted while an index fails for objects that may concern the level."""
    return bool(look.lacks) and wanted.verb == "delete"


def conclude(look: Outlook, round_: Round | None, now: datetime) -> Decided:
    """Turn the decision on a level into rows.

    `round_` is None if `must_act` said no. If its `is_called` is False, the function was to be called, and was not,
    since the call before still hangs.
    """
    verdict = _noted(look, _verdict(look, round_, now))
    facts, seen, before = look.facts, look.seen, look.facts.before
    if facts.now > now and verdict.due_at is not None:  # the clock was set back while its function ran
        verdict = replace(verdict, due_at=min(verdict.due_at, now + LOOKS_APART))
    rows = [] if round_ is None else list(round_.rows)
    reads = _reads(look)
    is_recorded = seen is not None or verdict.status != before.status
    return Decided(
        wake=facts.wake,
        level=_level(look, round_, verdict, now, is_recorded=is_recorded),
        due_at=verdict.due_at,
        versions=dict(seen.versions) if seen else {},
        dependencies_added=set(reads - facts.dependencies),
        dependencies_removed=set(facts.dependencies - reads),
        intents=rows,
        settled=facts.newly_settled,
        withdraws=facts.withdraws,
        withdrawn=sorted({*look.to_withdraw}.difference(row.key for row in rows)),
        continued=sorted({*look.to_withdraw}.intersection(row.key for row in rows)),
        is_evaluated=seen is not None,
        is_recorded=is_recorded,
        is_news=_is_news(look, verdict),
        seen_at=facts.now,
        parent_sequence=facts.parent.sequence,
        basis=facts.basis(
            rows,
            round_.called if round_ is not None else {},
            seen.looked_up if seen is not None else {},
            has_progressed=look.has_progressed,
        ),
        contents=_contents(look),
        is_made=facts.view.handler.is_made,
        suppressed=before.suppressed,
        is_put_off=look.is_put_off,
    )


def _is_news(look: Outlook, verdict: "_Verdict") -> bool:
    """Tell whether those have news who look at nothing but how the level stands: daemons, and views of other levels."""
    before, seen = look.facts.before, look.seen
    is_other = (verdict.status, verdict.reason, _drift(look)) != (before.status, before.reason, before.drift)
    has_other_children = seen is not None and look.level is not None and seen.desired != before.desired
    return is_other or has_other_children or before.evaluations == 0


class _Verdict(Struct, frozen=True):
    status: str
    reason: str = ""
    due_at: datetime | None = None
    """When to look again although nothing changed; None: not."""


def _noted(look: Outlook, verdict: _Verdict) -> _Verdict:
    """The verdict with what the level goes on without, so that nobody takes it for complete."""
    note = f"goes on, but deletes nothing: {look.lacks}" if look.facts.view.reconcile else look.lacks
    if not look.lacks or verdict.status in ("blocked", "deleting") or verdict.reason.endswith(note):
        return verdict
    return replace(verdict, reason=f"{verdict.reason}; {note}" if verdict.reason else note)


def _verdict(look: Outlook, round_: Round | None, now: datetime) -> _Verdict:
    facts, seen, before = look.facts, look.seen, look.facts.before
    if facts.withdraws:
        return _Verdict("deleting", "the parent has a deletionTimestamp")
    if seen is not None and seen.blocked:
        return _Verdict("blocked", seen.blocked)
    if seen is None and before.status == "blocked":  # nothing new: what blocks it still does
        return _Verdict("blocked", before.reason)
    if seen is not None and seen.error:  # it may have been short of time or memory
        return _Verdict("failed", seen.error, now + facts.longest)
    return _verdict_without_round(look, now) if round_ is None else _verdict_after(look, round_, now)


def _verdict_after(look: Outlook, round_: Round, now: datetime) -> _Verdict:
    next_at = now + backoff(_attempts(look), look.facts.longest)
    if round_.error:  # its round counts as an attempt, so that the pauses get longer
        return _Verdict("failed", round_.error, next_at)
    if round_.is_awaited:
        is_calling = any(row.verb == "call" for row in round_.rows)
        return _Verdict("settling", "", _look_at_calls(look, _next_look(look), is_calling=is_calling))
    if round_.withheld:
        more = f" and {len(round_.withheld) - 1} more" if len(round_.withheld) > 1 else ""
        return _Verdict("drifting", f"does not delete {round_.withheld[0]}{more}", _next_look(look))
    if look.facts.view.handler.writes_once:  # nothing to write, nor to wait for: the next round notes it as handled
        return _Verdict("settling", "", now)
    waits = look.level.reason if look.level is not None else ""
    if waits and (planned := _next_look(look)) is not None:
        return _Verdict("drifting", waits, planned)
    return _Verdict("drifting", waits or _NOTHING + (_LISTS if _is_of_lists(look) else ""), next_at)


def _is_of_lists(look: Outlook) -> bool:
    """Tell whether a side of the level is a list, so that the drift names no members."""
    level = look.level
    return level is not None and any(isinstance(side, list | tuple) for side in (level.desired, level.actual))


def _verdict_without_round(look: Outlook, now: datetime) -> _Verdict:
    facts, level, before = look.facts, look.level, look.facts.before
    drifts = look.drift is not None if level is not None else facts.has_stored_drift
    recheck_at = _next_look(look) if level is not None else facts.planned
    if look.is_put_off:
        recheck_at = facts.put_off_until if recheck_at is None else min(recheck_at, facts.put_off_until)
    if not drifts and level is None and before.status == "failed":  # nothing new: the error still stands
        return _Verdict("failed", before.reason, recheck_at)
    if under_way := look.under_way:
        is_calling = any(each.verb == "call" for each in under_way)
        due_at = _look_at_calls(look, recheck_at, is_calling=is_calling)
        hanging = [each for each in under_way if each.verb == "call" and each.error and each.attempts >= HANGS_AT]
        if hanging and facts.parent.is_deleting:
            return _Verdict("failed", hanging[0].error, due_at)
        return _Verdict("settling", _wait(under_way), due_at)
    last = facts.repeats
    if not drifts and last is not None and last.is_contested(now):
        calm_at = last.calm_at if recheck_at is None else min(last.calm_at, recheck_at)
        return _Verdict("failed", _undone(last.undone, last.by), calm_at)
    if not drifts:
        return _Verdict("in_sync", "", recheck_at)
    if failures := facts.failures:
        wait = pause(failures, before.attempts, facts.longest)
        planned = [at for at in (recheck_at, facts.planned) if at is not None and at > now]
        return _Verdict("failed", failures[0].error, recheck_at if wait is None else min([now + wait, *planned]))
    if until := look.rests_until:
        by = _undone_by(facts) or ("its own rounds" if last is not None and last.of != look.state else "")
        return _Verdict("failed", _undone(last.count if last is not None else 0, by), until)
    if facts.view.reconcile is None:
        return _Verdict("drifting", before.reason if level is None else level.reason, recheck_at)
    return _Verdict("drifting", _unclosed(facts), _later(facts, now))


def _next_look(look: Outlook) -> datetime | None:
    """When to evaluate again for a `recheck_at`: once for each time given, and never closer than `LOOKS_APART`."""
    facts, asked = look.facts, look.seen.recheck_at if look.seen is not None else None
    if asked is None or asked <= facts.now:
        return None
    # where this process's clock is behind, the time may have come by the database's
    seen_at = max(facts.now, facts.wake.due_at or facts.now)
    return asked if asked - seen_at >= LOOKS_APART else seen_at + LOOKS_APART


def _look_at_calls(look: Outlook, recheck_at: datetime | None, *, is_calling: bool) -> datetime | None:
    """When to look again at a level with a call that its view may want no more, or whose parent is being deleted.

    The actuator has it looked at sooner once an attempt has failed.
    """
    facts = look.facts
    may_be_unwanted = bool(look.under_way) and look.digest != facts.before.decided_inputs
    if not is_calling or not (may_be_unwanted or facts.parent.is_deleting):
        return recheck_at
    again = facts.now + (CALLS_APART if may_be_unwanted else facts.longest)
    return again if recheck_at is None else min(recheck_at, again)


def _unclosed(facts: Facts) -> str:
    """Why a level still drifts although none of its writes failed."""
    gone = next((i for i in facts.intents if i.outcome == "gone" and i.verb in _OF_OBJECTS and i.is_folded), None)
    if gone is not None:
        return f"{gone.verb} {gone.target}: the object is not there"
    took_nothing = next((i for i in facts.intents if i.outcome == "unchanged" and i.is_folded), None)
    if took_nothing is None:
        return "the last round did not close it"
    return (
        f"the API accepted {took_nothing.verb} {took_nothing.target} and changed nothing: it drops fields that the "
        "definition of the resource does not name"
    )


def _undone(count: int, by: str) -> str:
    """How often the last rounds were undone, and by whom."""
    return f"{UNDONE} {count} times{f' by {by}' if by else ''}"


def _undone_by(facts: Facts) -> str:
    """Who undid the last round, as far as the API tells."""
    own = field_manager(facts.view.operator)
    others = [i.shown_manager for i in facts.intents if i.shown_manager not in ("", own)]
    again = [
        i.target for i in facts.intents if i.shown_manager == own and (i.shown_version or 0) > i.result_version > 0
    ]
    if others or not again:
        return others[0] if others else ""
    return f"another write of {own} itself: `levelog why {again[0]}` shows both"


def _wait(under_way: Sequence[OpenIntent]) -> str:
    """What a level waits for; of a write that the log fails to show, what the API had of it."""
    intent = next((each for each in under_way if each.observed_at is not None), under_way[0])
    if intent.observed_at is None:
        shown = title_of(intent.view, intent.target) if intent.verb == "call" else intent.target
        return f"waits for {shown}"
    had = "was gone" if intent.observed_version == GONE else f"had version {intent.observed_version}"
    return (
        f"waits for {intent.target}: written as version {intent.result_version}, which the log does not show; "
        f"at {intent.observed_at:%H:%M:%S} UTC it {had} at the API: is ingest behind?"
    )


def _attempts(look: Outlook) -> int:
    """How many rounds in a row were decided on the same inputs, including a new one."""
    before = look.facts.before
    return before.attempts + 1 if look.digest == before.decided_inputs else 1


def _later(facts: Facts, now: datetime) -> datetime:
    """When to call the reconcile function again for a drift that the last round did not close."""
    planned = facts.planned
    return planned if planned is not None and planned > now else now + backoff(facts.before.attempts, facts.longest)


def _level(look: Outlook, round_: Round | None, verdict: _Verdict, now: datetime, *, is_recorded: bool) -> LevelRow:
    facts, seen, level, before = look.facts, look.seen, look.level, look.facts.before
    has_acted = round_ is not None
    return replace(
        before,
        status=verdict.status,
        reason=verdict.reason,
        desired=seen.desired if seen and level is not None else before.desired,
        actual=seen.actual if seen and level is not None else before.actual,
        drift=_drift(look),
        round=before.round + (round_ is not None and round_.is_called),
        attempts=_attempts(look) if has_acted else 0 if verdict.status == "in_sync" else before.attempts,
        evaluations=before.evaluations + (seen is not None),
        inputs=_inputs(look),
        fields_read=seen.fields_read if seen and seen.fields_read else before.fields_read,
        reads_digest=before.reads_digest if seen is None else seen.reads_digest,
        versions_digest=_versions_digest(look),
        decided_inputs=_decided_inputs(look, has_acted=has_acted),
        repeats=_repeats(look, round_, verdict),
        cause=max(facts.wake.cause, before.cause),
        suppressed="" if is_recorded else added(before.suppressed, "" if look.is_put_off else facts.wake.causes),
        recheck_at=verdict.due_at,
        evaluated_at=facts.now if seen else before.evaluated_at or facts.now,
        decided_at=now,
        since=before.since if verdict.status == before.status else facts.now,
    )


def _reads(look: Outlook) -> frozenset[IndexKey]:
    """Keys that the level depends on from now on."""
    if look.seen is not None:
        return frozenset(look.seen.versions)
    return frozenset() if look.facts.withdraws else look.facts.dependencies


def _versions_digest(look: Outlook) -> str:
    if look.seen is not None:
        return digest_of_versions(look.seen.versions)
    facts = look.facts
    is_as_read = facts.reads_digest == facts.before.reads_digest and not look.is_put_off
    return facts.versions_digest if is_as_read else facts.before.versions_digest


def _contents(look: Outlook) -> dict[IndexKey, bytes]:
    """What the keys read now held, of those that may have changed since the view was called last."""
    if look.seen is None or not look.seen.versions:
        return {}
    facts = look.facts
    asked = (each for text in (facts.wake.causes, facts.before.suppressed) for each in read_causes(text).sequences)
    since = min(asked, default=sys.maxsize)
    news = {p: at for p, at in look.seen.versions.items() if p not in facts.dependencies or at >= since}
    return contents_to_keep(news, look.seen.contents)


def _inputs(look: Outlook) -> str:
    if look.seen is not None:
        return look.seen.inputs
    return look.facts.inputs if look.facts.withdraws else look.facts.before.inputs


def _drift(look: Outlook) -> bytes | None:
    if look.level is not None:
        return look.drift
    return None if look.seen is not None and look.seen.error else look.facts.before.drift


def _decided_inputs(look: Outlook, *, has_acted: bool) -> str:
    """What the last round was decided on; forgotten once something else was seen, so that a return to it is news."""
    before = look.facts.before.decided_inputs
    if has_acted:
        return look.digest
    if look.seen is not None and look.seen.blocked:
        return before
    return before if before and look.digest == before else ""


def _repeats(look: Outlook, round_: Round | None, verdict: _Verdict) -> str | None:
    """How often in a row rounds were for one and the same state, or failed; a state that stays in sync ends the row."""
    seen, last, seen_at = look.seen, look.facts.repeats, look.facts.now
    of = ""
    if seen is not None and seen.error:
        of = VIEW_FAULT
    elif round_ is not None and round_.error:
        of = FAULT
    elif round_ is not None and round_.is_awaited:
        of = look.state
    if of:
        is_retry = of in FAULTS or bool(look.facts.failures)
        by, wants_same = _undone_by(look.facts), seen is None or seen.desired == look.facts.before.desired
        if last is None:
            return Repeats(of=of, count=1, at=seen_at).text
        return last.then(of, seen_at, is_retry=is_retry, wants_same=wants_same, by=by).text
    is_in_sync = verdict.status == "in_sync"
    if last is None or (last.of == VIEW_FAULT and seen is not None):
        return None
    if last.of == FAULT and (round_ is not None or is_in_sync):
        return None
    return (last.succeeded if is_in_sync else last).text
