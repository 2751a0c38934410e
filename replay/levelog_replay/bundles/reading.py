"""Reads a bundle: history in one file, to inspect and repeat without cluster, NATS or SQL server."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path
from typing import Final, Self

import msgspec

from levelog_base.errors import ConfigurationError, RecordError
from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen, ReceiptNoted, TargetObserved
from levelog_history.selection import Selected, has_any
from levelog_history.timeline import DecisionEntry, IsShown
from levelog_processors.program import Program
from levelog_replay.bundles.lines import (
    FORMAT,
    HASHED,
    ConclusionLine,
    DecisionLine,
    EndLine,
    Heading,
    IntentLine,
    Line,
    RecordLine,
    UnreadableLine,
)
from levelog_store.decide.decisions import Asked, Decision, WithWrites

_LINE: Final = msgspec.json.Decoder(Line)
_HEADING: Final = msgspec.json.Decoder(Heading)


class _Any(msgspec.Struct):
    """The facts that bundles of any format have."""

    line: str
    format: int
    levelog: str = "another one"


class Bundle:
    """The history in a file that was found whole; made by `open_bundle`. Read anew for each question, in one pass."""

    def __init__(self, path: Path, heading: Heading, *, decisions_at: int) -> None:
        self.name = "the bundle"
        self.path = path
        self.heading = heading
        self.origin, self.first, self.last = heading.origin, heading.first, heading.last
        self.cluster, self.begins, self.redaction = heading.cluster, heading.begins, heading.redaction
        self.decisions_at = decisions_at
        """Bytes before the first line of a decision."""

    async def recorded(self) -> Self:
        """It is complete."""
        return self

    async def ends(self) -> tuple[int, LoggedRecord | None, int]:
        """Sequence from which all records are there, the first of them that is, and sequence of the last."""
        first = self.heading.replaced_until or self.first
        async with aclosing(self.records(lambda sequence: sequence >= first)) as records:
            record = await anext(records, None)
        return first, record, self.last

    async def resources(self) -> Sequence[str]:
        """Names of the resources of which it has records, sorted."""
        return sorted(self.heading.resources)

    async def about(
        self, selected: Sequence[Selected], *, has_receipts: bool = False, is_followed: bool = False
    ) -> AsyncIterator[LoggedRecord]:
        """Records as `read_about` gives them. Raises ConfigurationError if it is to be followed."""
        if is_followed:
            raise ConfigurationError("nothing more happens in a bundle: leave --follow out")
        resources = {each.resource for each in selected}
        async for logged in self.records():
            match logged.record:
                case ObjectSeen(key=key) | ObjectDeleted(key=key):
                    is_about = has_any(selected, key)
                case ReceiptNoted() | TargetObserved():
                    is_about = has_receipts
                case record:
                    is_about = getattr(record, "resource", None) in resources
            if is_about:
                yield logged

    async def records(self, is_wanted: Callable[[int], bool] = lambda _: True) -> AsyncGenerator[LoggedRecord]:
        """All records whose sequences are wanted, in the order of the log."""
        for line in self.lines():
            if isinstance(line, RecordLine | UnreadableLine):
                if is_wanted(line.sequence):
                    yield line.logged()
            elif not isinstance(line, Heading):
                break

    async def decisions(self) -> AsyncGenerator[WithWrites]:
        """Every decision, in the order of the snapshots that they saw."""
        made: DecisionLine | None = None
        past: Decision | None = None
        writes: list[Asked] = []
        for line in self.lines(self.decisions_at):
            if isinstance(line, IntentLine):
                writes.append(line.asked)
                continue
            if past is not None:
                yield past, writes
            past, writes = None, []
            if isinstance(line, DecisionLine):
                made = line
            elif isinstance(line, ConclusionLine) and made is not None:
                past = made.past(line)

    async def entries(self, is_shown: IsShown) -> AsyncIterator[DecisionEntry]:
        """The same for a timeline: those on objects that are shown, and those that wrote to one."""
        async for past, writes in self.decisions():
            entry = DecisionEntry(application=self.origin.application, decision=past, writes=writes)
            if entry.is_about(is_shown):
                yield entry

    def lines(self, start: int = 0) -> Iterator[Line]:
        """The lines from a byte on."""
        with self.path.open("rb") as file:
            file.seek(start)
            for text in file:
                yield _LINE.decode(text)


def open_bundle(path: Path) -> Bundle:
    """Read a bundle through once.

    Raises ConfigurationError for a file that cannot be read, is no bundle, is damaged, or comes from a newer levelog.
    """
    try:
        with path.open("rb") as file:
            return _checked(path, iter(file))
    except OSError as error:
        raise ConfigurationError(f"bundle {path} cannot be read: {error.strerror}") from error


def _checked(path: Path, lines: Iterator[bytes]) -> Bundle:
    first = next(lines, b"")
    heading = _heading(path, first)
    state = sha256(first)
    size, decisions_at = len(first), 0
    records = decisions = conclusions = 0
    for number, text in enumerate(lines, start=2):
        try:
            line = _LINE.decode(text)
            if isinstance(line, RecordLine | UnreadableLine):
                line.logged()
        except (msgspec.DecodeError, RecordError, ValueError, RecursionError) as error:
            raise _damaged(path, f"line {number} cannot be read: {error}") from error
        if isinstance(line, EndLine):
            said = (line.records, line.decisions, line.decisions, line.sha256)
            if said != (records, decisions, conclusions, state.hexdigest()):
                raise _damaged(path, "its records are not those that were exported, or decisions are missing")
            if next(lines, b""):
                raise _damaged(path, f"something stands below its end, line {number}")
            return Bundle(path, heading, decisions_at=decisions_at or size)
        if isinstance(line, HASHED):
            is_placed = not decisions_at
            records += isinstance(line, RecordLine | UnreadableLine)
            state.update(text)
        else:
            decisions_at = decisions_at or size
            decisions += isinstance(line, DecisionLine)
            conclusions += isinstance(line, ConclusionLine)
            is_placed = conclusions == decisions - isinstance(line, DecisionLine)
        if not is_placed:
            raise _damaged(path, f"line {number} is out of its place")
        size += len(text)
    raise _damaged(path, "its end is missing")


def _heading(path: Path, text: bytes) -> Heading:
    try:
        told = msgspec.json.decode(text, type=_Any)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path} is no bundle: `levelog export` writes them") from error
    if told.line != "bundle":
        raise ConfigurationError(f"{path} is no bundle: `levelog export` writes them")
    if told.format > FORMAT:
        raise ConfigurationError(
            f"bundle {path} was written by a newer levelog ({told.levelog}, format {told.format}); this one reads "
            f"formats up to {FORMAT}"
        )
    try:
        return _HEADING.decode(text)
    except msgspec.DecodeError as error:
        raise _damaged(path, f"its heading cannot be read: {error}") from error


def _damaged(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(f"bundle {path} is damaged: {why}")


def refuse_other(bundle: Bundle, application: str, program: Program) -> None:
    """Raise ConfigurationError if a bundle is not of an application, or its operators read what is not in there."""
    if bundle.origin.application != application:
        raise ConfigurationError(
            f"bundle {bundle.path} is of application {bundle.origin.application}, the operators given are {application}"
        )
    if missing := sorted(program.watched - set(bundle.heading.resources)):
        raise ConfigurationError(
            f"bundle {bundle.path} holds no records of {', '.join(missing)}, which the operators read; it holds those "
            f"of {', '.join(bundle.heading.resources)}"
        )
    if program.expires and not bundle.heading.has_bookmarks:
        raise ConfigurationError(
            f"bundle {bundle.path} holds no bookmarks, by whose times entries of indices with expires= end: export it "
            "with --bookmarks"
        )
