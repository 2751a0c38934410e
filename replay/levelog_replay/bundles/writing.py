"""Writes a bundle: from the log and SQL, or from another bundle with different decisions."""

import os
import tempfile
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import Application, ObjectKey
from levelog_base.wire.records import (
    BookmarkNoted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    ReceiptNoted,
    TargetObserved,
    Unreadable,
)
from levelog_history.reach import Moment
from levelog_history.records import records_to
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
    conclusion_lines,
    decision_lines,
    record_line,
)
from levelog_replay.bundles.needed import Losses, Needed
from levelog_replay.bundles.reading import Bundle
from levelog_replay.choice import Selection
from levelog_replay.comparing import Conclusion
from levelog_replay.historysources import History
from levelog_store.decide.decisions import Decision


class Exported(Struct, frozen=True, kw_only=True):
    """The contents of a bundle."""

    records: int
    decisions: int


class _BundleFile:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._state = sha256()
        self.records = 0
        self.decisions = 0

    def write(self, line: Line) -> None:
        text = msgspec.json.encode(line) + b"\n"
        if isinstance(line, HASHED):
            self._state.update(text)
            self.records += isinstance(line, RecordLine | UnreadableLine)
        self.decisions += isinstance(line, DecisionLine)
        self._file.write(text)

    def end(self) -> None:
        self.write(EndLine(records=self.records, decisions=self.decisions, sha256=self._state.hexdigest()))


async def export(
    history: History,
    path: Path,
    *,
    resources: Collection[str],
    begins: Moment,
    selection: Selection,
    chosen: str,
    has_bookmarks: bool,
) -> Exported:
    """Write the selected decisions, and all records that they can have been made on; returns what was written.

    `chosen` are words for the selection.

    That is all records of these resources up to the last that a decision saw or the selection names, but for what was
    replaced before the selection starts, and bookmarks: what a decision read may come from any of them. Raises
    ConfigurationError if nothing was decided, or the file cannot be written.
    """
    last = 0
    folded: tuple[int, ...] = ()
    parents: set[ObjectKey] = set()
    async for past, _ in history.decisions():
        if _is_kept(past, selection, history):
            last = max(last, past.seen_to)
            if len(past.basis.folded) == history.origin.partitions:
                folded = tuple(map(min, folded or past.basis.folded, past.basis.folded))
            parents.add(ObjectKey.parse(past.parent))
    if not parents:
        raise ConfigurationError(
            f"no decision of application {history.origin.application} was recorded {chosen}: `levelog levels` "
            "shows what it decides on"
        )
    if selection.end is None:
        last = history.last
    last = max(last, selection.end.sequence if selection.end else 0)
    needed: Needed | None = None
    if selection.start is not None and folded:
        ended = {key.living for key in parents if key.living != key}
        needed = await Needed.find(history, selection.start, folded, ended, last)
        begins = needed.begins if needed.begins.is_later(begins) else begins
    heading = Heading(
        format=FORMAT,
        levelog=version("levelog"),
        **asdict(history.origin),
        resources=sorted(resources),
        first=history.first,
        last=last,
        begins=begins,
        replaced_until=needed.begins.sequence if needed is not None else 0,
        has_bookmarks=has_bookmarks,
        redaction=history.redaction,
    )
    with _written(path) as writer:
        writer.write(heading)
        losses = Losses()
        async for logged in records_to(history, last):
            if not _is_about(logged, resources, heading.application):
                continue
            is_needed = needed is None or needed.has(logged)
            if isinstance(logged.record, BookmarkNoted) and not has_bookmarks:
                is_needed = False
            if losses.ends(logged) or is_needed:
                writer.write(record_line(logged))
        async for past, asked in history.decisions():
            if _is_kept(past, selection, history):
                for line in decision_lines(past, asked):
                    writer.write(line)
        writer.end()
        return Exported(records=writer.records, decisions=writer.decisions)


def rewrite(bundle: Bundle, conclusions: Mapping[tuple[str, str, int], Conclusion | None]) -> None:
    """Put other conclusions into a bundle, by view, parent and ordinal; a decision with None goes."""
    with _written(bundle.path) as writer:
        made: DecisionLine | None = None
        is_replaced = False
        for line in bundle.lines():
            if isinstance(line, EndLine):
                break
            if isinstance(line, DecisionLine):
                made = line
                place = (line.view, line.parent, line.ordinal)
                is_replaced = place in conclusions
                conclusion = conclusions.get(place)
                if conclusion is not None:
                    for each in (line, *conclusion_lines(conclusion)):
                        writer.write(each)
            if made is None or not (is_replaced and isinstance(line, DecisionLine | ConclusionLine | IntentLine)):
                writer.write(line)
        writer.end()


@contextmanager
def _written(path: Path) -> Generator[_BundleFile]:
    """A file that is there whole or not at all."""
    try:
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        part = Path(name)
        try:
            with os.fdopen(number, "wb") as file:
                yield _BundleFile(file)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"bundle {path} cannot be written: {error.strerror}") from error


def _is_kept(past: Decision, selection: Selection, history: History) -> bool:
    return selection.has(past) and past.seen_to <= history.last


def _is_about(logged: LoggedRecord, resources: Collection[str], application: Application) -> bool:
    match logged.record:
        case Unreadable(key=key):
            return key is None or str(key.group_resource) in resources
        case ObjectSeen(key=key) | ObjectDeleted(key=key):
            return str(key.group_resource) in resources
        case ReceiptNoted(application=of) | TargetObserved(application=of):
            return of == application
        case record:
            return str(record.resource) in resources
