"""The text of `levelog why`: what led to each decision, what it changed and wrote, on the timeline of the log."""

from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Final

import msgspec

from levelog.handlers.callnames import shown_write
from levelog_base.wire.records import ReceiptNoted
from levelog_cli.printing.tables import folded
from levelog_cli.printing.timeline import INDENT, Timeline, detailed
from levelog_history.differences import drift_text, shown
from levelog_history.explaining import CausingRecord, Explained, ExplainedWrite, ReadChange, is_quiet
from levelog_history.ignoring import Ignored, Why
from levelog_history.revisions import Revision
from levelog_history.wording import other_text, outcome_text, read_text, state_text, woken, write_text
from levelog_store.decide.decisions import Decision

_DEEP: Final = INDENT + "  "
_MOST: Final = 12
"""Lines of one kind in one decision; of more, it is said how many there are."""

_MOST_WRITES: Final = 5
"""Most writes of one decision, in brief."""

_QUIET: Final = "its newest decision changed and wrote nothing; --all shows those before"

_WHY: Final[dict[Why, str]] = {
    "not_read": "the view reads nothing that changed",
    "own_write": "a write of levelog's own; the view reads nothing that changed",
    "looked_at": "the level was looked at, and what it reads was as before",
    "waiting": "nobody has looked at it yet",
    "no_level": "the parent was gone, and the level with it",
}


def explained_lines(
    last: Decision, chosen: Sequence[Explained], *, target: str = "", is_full: bool = False
) -> Iterator[str]:
    """The lines of decisions on one level, of which `last` is the newest; `target` is what was asked about.

    Unless they are full, decisions and records that only show how writes went are passed over.
    """
    if target:
        verbs = [write.intent.verb for each in chosen for write in each.writes if write.intent.target == target]
        done = "deleted" if verbs[-1:] == ["delete"] else "written"
        yield from folded(f"{target} was {done} by {last.view} for {last.parent}")
    if is_full or not target:
        reason = f" ({last.reason})" if last.reason else ""
        rounds = f", round {last.round}" if last.round else ""
        yield from folded(f"{last.view} of {last.parent}: {last.status}{rounds}{reason}")
    if not chosen:
        yield "nothing was decided since"
        return
    yield ""
    timeline = Timeline()
    told: set[int] = set()
    if not is_full:
        yield from list(_brief(chosen, timeline, target)) or (_QUIET,)
        return
    for explained in chosen:
        yield from _causes(explained, timeline, told)
        yield from _decision(explained, timeline, target)


def _brief(chosen: Sequence[Explained], timeline: Timeline, target: str) -> Iterator[str]:
    """Changes from outside, and decisions that changed a status or wrote."""
    causes: dict[int, CausingRecord] = {}
    seen_in: dict[str, int] = {}
    """By target of a write, the record that shows it: what comes before that is the write's own echo, and what comes
    after it matters if something is written again."""
    for explained in chosen:
        causes |= {cause.sequence: cause for cause in explained.causes}
        if is_quiet(explained):
            continue
        has_arrived = explained.decision.status == "in_sync" and not explained.writes
        for cause in causes.values():
            for entry in cause.entries:
                if not isinstance(entry, Revision) or (has_arrived and entry.object in seen_in):
                    continue
                if cause.sequence > seen_in.get(entry.object, 0):
                    yield from timeline.brief(entry, cause.sequence)
        causes.clear()
        yield from _brief_decision(explained, timeline, target)
        seen_in |= {each.shown.object: each.shown.sequence for each in explained.writes if each.shown is not None}


def _brief_decision(explained: Explained, timeline: Timeline, target: str) -> Iterator[str]:
    decision = explained.decision
    yield from timeline.decided(decision)
    if decision.basis.is_due:
        yield from detailed("its time had come")
    if decision.status in ("failed", "blocked"):
        yield from detailed(decision.reason)
    if explained.is_of_other_code:
        yield from detailed("by other code than before")
    if any("." in keys for keys in decision.differing.values()):  # of a level without parts
        desired, actual = (shown(msgspec.json.decode(each or b"null")) for each in (decision.desired, decision.actual))
        yield from detailed(f"desired {desired}, actual {actual}")
    elif decision.differing:
        yield from detailed(drift_text(decision.differing))
    writes = [each for each in explained.writes if target in ("", each.intent.target)][:_MOST_WRITES]
    for number, write in enumerate(writes, start=1):
        more = len(decision.intents) - len(writes) if number == len(writes) else 0
        yield from detailed(write_text(write) + (f" (and {more} more)" if more else ""))


def ignored_lines(view: str, parent: str, ignored: Sequence[Ignored]) -> Iterator[str]:
    """The lines of what led to nothing."""
    if not ignored:
        yield from folded(f"each change of {parent}, and of what {view} reads for it, led to a decision")
        return
    yield from folded(f"changes without a decision of {view} on {parent}:")
    day = ""
    for each in ignored:
        if not each.time.startswith(day) or not day:
            day = each.time.partition(" ")[0]
            yield f"{'SEQUENCE':>8}  {day} UTC"
        by = f" by {each.writer}" if each.writer else ""
        what = each.happened if each.count == 1 else f"{each.happened} {each.count} times, up to {each.last},"
        begin = f"{each.first:>8}  {each.time.partition(' ')[2]}  "
        yield from folded(f"{each.object} {what}{by}", begin)
        yield from _listed([f"{field}" for field in each.fields], INDENT)
        yield from detailed(f"ignored: {_WHY[each.why]}")


def _causes(explained: Explained, timeline: Timeline, told: set[int]) -> Iterator[str]:
    for cause in explained.causes:
        if cause.sequence in told:
            continue
        told.add(cause.sequence)
        if not cause.entries:
            yield from folded(other_text(cause), f"{cause.sequence:>8}  {_time_of(cause):<8}  ")
        for entry in cause.entries:
            yield from timeline.lines(entry, cause.sequence)


def _time_of(cause: CausingRecord) -> str:
    return f"{cause.record.record.time.astimezone(UTC):%H:%M:%S}" if cause.record else ""


def _decision(explained: Explained, timeline: Timeline, target: str) -> Iterator[str]:
    decision = explained.decision
    yield from timeline.decided(decision)
    yield from detailed(woken(decision))
    if explained.is_of_other_code:
        yield from detailed("by other code than before")
    if decision.reason:
        yield from detailed(decision.reason)
    yield from _reads(decision.view, explained.reads)
    for each in explained.level_statuses:
        was = f"{each.before} -> " if each.before else ""
        yield from detailed(f"saw {each.level}: {was}{each.after or 'gone'}")
    yield from _listed([str(each) for each in explained.differences], INDENT)
    for part, keys in decision.differing.items():
        yield from detailed(f"{part}: {', '.join(keys)}")
    for write in explained.writes:
        yield from _write(write, is_asked=write.intent.target == target)


def _reads(view: str, reads: Sequence[ReadChange]) -> Iterator[str]:
    for read in reads:
        place = read_text(view, read.index, read.key)
        by = f"changed by {read.version}" if read.version > 0 else "empty"
        yield from detailed(f"read {place}, {by}{'' if read.is_kept or not read.key else ', too long to be kept'}")
        yield from _listed(
            [*(f"- {shown(each)}" for each in read.removed), *(f"+ {shown(each)}" for each in read.added)]
        )


def _write(write: ExplainedWrite, *, is_asked: bool) -> Iterator[str]:
    intent = write.intent
    mark = " <=" if is_asked else ""
    shown_as = shown_write(intent.view, intent.verb, intent.target)
    yield from detailed(f"{shown_as}: {state_text(write)} (key {intent.key[:12]}){mark}")
    if write.receipt is not None:
        yield from folded(_receipt(write.receipt, write.receipt_sequence), _DEEP)
    if write.shown is not None:
        yield from folded(f"{write.shown.sequence} shows it: {_shown(write.shown)}", _DEEP)


def _receipt(receipt: ReceiptNoted, sequence: int) -> str:
    answer = f", answer {receipt.answer}" if receipt.answer else ""
    return f"{sequence} is its receipt: {outcome_text(receipt)}{answer}"


def _shown(revision: Revision) -> str:
    return f"{revision.object.rpartition('/')[2]} {revision.happened}, version {revision.version}"


def _listed(lines: Sequence[str], begin: str = _DEEP) -> Iterator[str]:
    for line in lines[:_MOST]:
        yield from folded(line, begin)
    if len(lines) > _MOST:
        yield from folded(f"and {len(lines) - _MOST} more", begin)
