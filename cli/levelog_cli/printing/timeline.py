"""A timeline as it is printed: a line for what happened, the details below it, 80 columns on a terminal."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Final

from levelog.handlers.callnames import shown_write
from levelog_base.counting import counted
from levelog_base.wire.records import ReceiptNoted, TargetObserved
from levelog_cli.printing.tables import folded
from levelog_history.happenings import Entry
from levelog_history.revisions import Missing, Revision
from levelog_history.timeline import AnyEntry, DecisionEntry
from levelog_history.wording import happened_text, is_first, receipt_text, woken, writer_text
from levelog_store.decide.decisions import Decision
from levelog_store.rows import Verdict, ViewParent

INDENT: Final = " " * 20
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
                yield from folded(f"{name}{happened_text(entry)}{writer_text(entry)}", begin)
                if entry.happened in ("created", "found", "recreated"):
                    yield from detailed(f"uid {entry.uid}")
                for difference in entry.differences:
                    yield from detailed(str(difference))
            case Missing():
                yield from folded(f"history of {entry.resource} is missing: {entry.reason}", begin)
            case ReceiptNoted():
                yield from folded(receipt_text(entry), begin)
                yield from detailed(f"for {entry.parent}, round {entry.round}")
            case TargetObserved():
                has = f"has version {entry.target_version}" if entry.target_version else "has it no more"
                yield from folded(
                    f"{entry.view}: {entry.target} was looked at, as its write was not seen: the API {has}", begin
                )
                yield from detailed(f"for {entry.parent}")

    def brief(self, revision: Revision, sequence: int) -> Iterator[str]:
        """The lines of a revision without what the API server adds by itself, and only the first fields of many."""
        yield from self.day(revision.time)
        yield from folded(
            f"{revision.object} {happened_text(revision)}{writer_text(revision)}", _begin(revision, sequence)
        )
        fields = [] if revision.is_doomed else [str(each) for each in revision.differences]
        for field in fields[:_MOST_FIELDS]:
            yield from detailed(field)
        if (more := len(fields) - _MOST_FIELDS) > 0:
            yield from detailed(f"and {counted(more, 'more field')}")

    def decided(self, decision: Decision, *, of: str = "", reason: str = "") -> Iterator[str]:
        """The line of a decision: the status before and after it, and the round if it is another."""
        yield from self.day(decision.decided_at)
        was = decision.basis.status
        status = decision.status if is_first(decision) or was == decision.status else f"{was} -> {decision.status}"
        rounds = f", round {decision.round}" if decision.round != decision.basis.round else ""
        begin = f"{'=>':>8}  {decision.decided_at.astimezone(UTC):%H:%M:%S}  "
        yield from folded(f"{decision.view}{of}: {status}{rounds}{reason}", begin)

    def _decision(self, entry: DecisionEntry) -> Iterator[str]:
        decision = entry.decision
        verdict = decision.verdict
        level = decision.view, decision.parent
        before, self._newest[level] = self._newest.get(level), verdict
        if before == verdict and not decision.intents:
            return
        of = "" if decision.parent == self._only else f" of {decision.parent}"
        yield from self.decided(decision, of=of, reason=f": {decision.reason}" if decision.reason else "")
        writes = [shown_write(decision.view, asked.verb, asked.target) for asked in entry.writes[:_MOST_WRITES]]
        if more := len(decision.intents) - len(writes):
            writes.append(f"{more} more" if writes else f"{counted(more, 'write')} not kept any more")
        yield from detailed("; ".join([woken(decision), *writes]))


def _begin(entry: Entry, sequence: int) -> str:
    return f"{sequence:>8}  {entry.time.astimezone(UTC):%H:%M:%S}  "


def detailed(text: str) -> list[str]:
    """The lines of a detail, below what happened."""
    return folded(text, INDENT)
