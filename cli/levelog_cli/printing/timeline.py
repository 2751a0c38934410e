"""A timeline as it is printed: a line for what happened, the details below it, 80 columns on a terminal."""

import textwrap
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Final

from levelog.counting import counted
from levelog.handlers.callnames import NOT_CALLED, in_words, only_notes, shown_patches, shown_write
from levelog.wire.records import ReceiptNoted, TargetSighted
from levelog_cli.printing.tables import line_width
from levelog_history.happenings import Entry
from levelog_history.revisions import Missing, Revision
from levelog_history.timeline import AnyEntry, DecisionEntry
from levelog_store.decide.decisions import Basis, Decision
from levelog_store.rows import Verdict, ViewParent

_TEXT: Final = {
    "created": "created",
    "found": "found by a list",
    "changed": "changed",
    "rewritten": "written, no field changed",
    "recreated": "deleted and created again",
    "deleted": "deleted",
    "swept": "deleted unseen: a list no longer had it",
    "unreadable": "a record that is no JSON of an object",
}
INDENT: Final = " " * 20
_MOST: Final = 12
"""Records that are named in one line; of more, it is said how many there are."""
_MOST_WRITES: Final = 3
_MOST_FIELDS: Final = 3


class Timeline:
    """Turns entries into lines, and says the day where another one begins; times are UTC."""

    def __init__(self, *, only: str = "") -> None:
        """`only`: the one object that is told about, whose name is left out."""
        self._only = only
        self._day: date | None = None
        self._newest: dict[ViewParent, Verdict] = {}

    def day(self, time: datetime) -> Iterator[str]:
        """The line that says the day, where it is another one than before."""
        day = time.astimezone(UTC).date()
        if day != self._day:
            self._day = day
            yield f"{'SEQUENCE':>8}  {day} UTC"

    def lines(self, entry: AnyEntry, sequence: int) -> Iterator[str]:
        """The lines of the entry of a record, or of a decision; none of one that writes and changes nothing."""
        if isinstance(entry, DecisionEntry):
            yield from self._decision(entry)
            return
        yield from self.day(entry.time)
        begin = _begin(entry, sequence)
        match entry:
            case Revision():
                name = "" if entry.object == self._only else f"{entry.object} "
                yield from folded(f"{name}{_happened(entry)}{_writer(entry)}", begin)
                if entry.happened in ("created", "found", "recreated"):
                    yield from folded(f"uid {entry.uid}")
                for difference in entry.differences:
                    yield from folded(str(difference))
            case Missing():
                yield from folded(f"history of {entry.resource} is missing: {entry.reason}", begin)
            case ReceiptNoted():
                yield from folded(_receipt(entry), begin)
                yield from folded(f"for {entry.parent}, round {entry.round}")
            case TargetSighted():
                has = f"has version {entry.target_version}" if entry.target_version else "has it no more"
                yield from folded(
                    f"{entry.view}: {entry.target} was looked at, as its write was not seen: the API {has}", begin
                )
                yield from folded(f"for {entry.parent}")

    def brief(self, revision: Revision, sequence: int) -> Iterator[str]:
        """The lines of a revision without what the API server adds by itself, and only the first fields of many."""
        yield from self.day(revision.time)
        yield from folded(f"{revision.object} {_happened(revision)}{_writer(revision)}", _begin(revision, sequence))
        fields = [] if revision.is_doomed else [str(each) for each in revision.differences]
        for field in fields[:_MOST_FIELDS]:
            yield from folded(field)
        if (more := len(fields) - _MOST_FIELDS) > 0:
            yield from folded(f"and {counted(more, 'more field')}")

    def _decision(self, entry: DecisionEntry) -> Iterator[str]:
        decision = entry.decision
        verdict = Verdict(**{name: getattr(decision, name) for name in Verdict.__struct_fields__})
        level = decision.view, decision.parent
        before, self._newest[level] = self._newest.get(level), verdict
        if before == verdict and not decision.intents:
            return
        yield from self.day(decision.decided_at)
        at = f"{decision.decided_at.astimezone(UTC):%H:%M:%S}"
        parent = "" if decision.parent == self._only else f" of {decision.parent}"
        was = decision.basis.status
        status = decision.status if is_first(decision) or was == decision.status else f"{was} -> {decision.status}"
        rounds = f", round {decision.round}" if decision.round != decision.basis.round else ""
        reason = f": {decision.reason}" if decision.reason else ""
        yield from folded(f"{decision.view}{parent}: {status}{rounds}{reason}", f"{'=>':>8}  {at}  ")
        writes = [shown_write(decision.view, asked.verb, asked.target) for asked in entry.writes[:_MOST_WRITES]]
        if more := len(decision.intents) - len(writes):
            writes.append(f"{more} more" if writes else f"{counted(more, 'write')} not kept any more")
        yield from folded("; ".join([woken(decision), *writes]))


def _begin(entry: Entry, sequence: int) -> str:
    return f"{sequence:>8}  {entry.time.astimezone(UTC):%H:%M:%S}  "


def _happened(revision: Revision) -> str:
    return "is being deleted" if revision.is_doomed else _TEXT[revision.happened]


def is_first(decision: Decision) -> bool:
    """Tell whether there was no level before a decision, or one of which nothing was known yet."""
    return (decision.basis.status, decision.basis.round) == (Basis().status, 0)


def woken(decision: Decision) -> str:
    """Which records asked for a decision."""
    called = "" if decision.is_called else "; the view was not called"
    sequences = [str(sequence) for sequence in decision.causes.sequences]
    if not sequences:
        why = "woken by no record: its time had come" if decision.basis.is_due else "woken by no record"
        return f"{why}{called}"
    records = ", ".join(sequences[:_MOST])
    more = f" and {len(sequences) - _MOST} more" if len(sequences) > _MOST else ""
    cut = " and others that were not noted" if decision.causes.has_more else ""
    return f"woken by {records}{more}{cut}{called}"


def _writer(revision: Revision) -> str:
    manager, at = revision.written.manager, revision.written.at
    if revision.is_gone or revision.is_doomed or not manager:
        return ""
    if not revision.is_listed:
        return f" by {manager}"
    return f", last written by {manager}{_moment(at, revision.time) if at else ''}"


def _moment(text: str, recorded: datetime) -> str:
    """A moment, without the day if that is the one on which it was recorded."""
    at = datetime.fromisoformat(text).astimezone(UTC)
    return f" at {at:%H:%M:%S}" if at.date() == recorded.astimezone(UTC).date() else f" at {at:%Y-%m-%d %H:%M:%S}"


def _receipt(receipt: ReceiptNoted) -> str:
    version = f" as version {receipt.target_version}" if receipt.target_version else ""
    error = f": {receipt.error}" if receipt.error else ""
    shown_as = shown_write(receipt.view, receipt.verb, str(receipt.target))
    outcome = NOT_CALLED if only_notes(receipt.view, str(receipt.target), receipt.call) else receipt.outcome
    return f"{receipt.view}: {shown_as} {outcome}{shown_patches(receipt)}{version}{error}"


def folded(text: str, begin: str = INDENT) -> list[str]:
    """Lines of the width that there is; those after the first are indented as far as it."""
    return textwrap.wrap(
        in_words(text), line_width(), initial_indent=begin, subsequent_indent=" " * len(begin), break_on_hyphens=False
    )
