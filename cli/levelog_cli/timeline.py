"""A timeline as it is printed: a line for what happened, the details below it, 80 columns on a terminal."""

import textwrap
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Final

from levelog.records import ReceiptNoted, TargetSighted
from levelog_cli.tables import line_width
from levelog_history.revisions import Missing, Revision

_TEXT: Final = {
    "created": "created",
    "found": "found by a list",
    "changed": "changed",
    "rewritten": "written, no field changed",
    "recreated": "deleted and made again",
    "deleted": "deleted",
    "swept": "deleted: missing from a list, nobody saw it go",
    "unreadable": "a record that is no JSON of an object",
}
INDENT: Final = " " * 20


class Timeline:
    """Turns entries into lines, and says the day where another one begins; times are UTC."""

    def __init__(self, *, is_named: bool) -> None:
        """`is_named`: entries bear the name of their object, as there are several."""
        self._is_named = is_named
        self._day: date | None = None

    def day(self, time: datetime) -> Iterator[str]:
        """The line that says the day, where it is another one than before."""
        day = time.astimezone(UTC).date()
        if day != self._day:
            self._day = day
            yield f"{'SEQUENCE':>8}  {day} UTC"

    def lines(self, entry: Revision | Missing | ReceiptNoted | TargetSighted, sequence: int) -> Iterator[str]:
        """The lines of the entry of a record."""
        yield from self.day(entry.time)
        at = entry.time.astimezone(UTC)
        begin = f"{sequence:>8}  {at:%H:%M:%S}  "
        match entry:
            case Revision():
                name = f"{entry.object} " if self._is_named else ""
                yield from folded(f"{name}{_TEXT[entry.happened]}{_writer(entry)}", begin)
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


def _writer(revision: Revision) -> str:
    manager, at = revision.written.manager, revision.written.at
    if revision.is_gone or not manager:
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
    return f"{receipt.view}: {receipt.verb} {receipt.target} {receipt.outcome}{version}{error}"


def folded(text: str, begin: str = INDENT) -> list[str]:
    """Lines of the width that there is; those after the first are indented as far as it."""
    return textwrap.wrap(
        text, line_width(), initial_indent=begin, subsequent_indent=" " * len(begin), break_on_hyphens=False
    )
