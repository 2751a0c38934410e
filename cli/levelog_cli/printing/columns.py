"""The columns of `levelog levels`, `levelog writers` and `levelog history --blame`."""

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from levelog_base.counting import counted
from levelog_base.secrets.scrubbing import is_redacted
from levelog_base.wire.objects import CLUSTER_SCOPE
from levelog_cli.printing.lines import print_line
from levelog_cli.printing.tables import Paint, coloured, is_narrow, table_lines
from levelog_history.differences import drift_text, shown
from levelog_history.pastlevels import LevelsNow
from levelog_history.revisions import Revision
from levelog_history.writers import Contested, ManagerWrites, Period
from levelog_store.decide.decisions import Decision
from levelog_store.look.overview import LevelLine
from levelog_store.rows import Scope

LEVEL_COLUMNS: Final = ("VIEW", "PARENT", "STATUS", "ROUND", "DRIFT", "REASON")
LEVEL_PAINTS: Final[Mapping[int, Paint]] = {LEVEL_COLUMNS.index("STATUS"): coloured}
_NAMED: Final = 5
_FIELDS: Final = 4
_BOOKMARKED: Final = timedelta(minutes=2)
"""Twice the time between two bookmarks: https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks"""


def levels_table(has_several: bool) -> tuple[Sequence[str], Mapping[int, Paint]]:
    """The columns of levels and their colours; with the application, if there are several."""
    if not has_several:
        return LEVEL_COLUMNS, LEVEL_PAINTS
    return ("APPLICATION", *LEVEL_COLUMNS), {column + 1: paint for column, paint in LEVEL_PAINTS.items()}


def level_rows(found: Sequence[tuple[Scope, LevelLine | Decision]], *, has_several: bool) -> list[list[str]]:
    """A row for each level, below `levels_table`."""
    return [[*([scope.application] if has_several else ()), *level_cells(each)] for scope, each in found]


def level_cells(level: LevelLine | Decision) -> list[str]:
    """The cells below `LEVEL_COLUMNS`."""
    reason = level.told_reason if isinstance(level, LevelLine) else level.reason
    return [level.view, level.parent, level.status, str(level.round), drift_text(level.differing), reason]


def print_levels(found: Sequence[tuple[Scope, LevelLine | Decision]], nothing: str, *, has_several: bool) -> None:
    """Print a row for each level, or that there are none, and why."""
    if not found:
        print_line(nothing)
        return
    columns, paints = levels_table(has_several)
    lines = table_lines(columns, level_rows(found, has_several=has_several), paints=paints)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    if is_narrow() and any(f"/{CLUSTER_SCOPE}/" in each.parent for _, each in found):
        print_line("", f"{CLUSTER_SCOPE} stands for no namespace")


def print_blanks(levels: LevelsNow) -> None:
    """Print what the levels do not know of: resources, inputs and records, a line each."""
    if levels.unlisted:
        names = ", ".join(dict.fromkeys(levels.unlisted))
        print_line("", f"not listed yet: {names}; `levelog doctor FILE` says why")
    if levels.silent:
        print_line("", "out of date, so that the levels use what was known last:")
        print_line(*(f"{resource}: {error}" for resource, error in levels.silent))
    if levels.skipped:
        what = f"{counted(len(levels.skipped), 'record')} cannot be read"
        print_line("", f"{what}; the levels do not know what is in there:")
        print_line(*(f"{record.place}: {record.error}" for record in levels.skipped[:_NAMED]))
        if (more := len(levels.skipped) - _NAMED) > 0:
            print_line(f"and {more} more")


def print_age(levels: LevelsNow, now: datetime) -> None:
    """Say on stderr how old what the levels go by is, where a watch is silent for longer than one that lives."""
    for scope in levels.scopes:
        resource, at = levels.contacts.get(scope.number, ("", now))
        age = now - at
        if age > _BOOKMARKED:
            where = f" of {scope.application} on {scope.cluster}" if len(levels.scopes) > 1 else ""
            ago = f"{timedelta(seconds=int(age.total_seconds()))} ago; do ingest, NATS and a processor run?"
            sys.stderr.write(f"last contact{where}: {resource}, {at:%Y-%m-%d %H:%M:%S} UTC, {ago}\n")


def writers_lines(found: Sequence[ManagerWrites]) -> list[str]:
    """A row for each field manager and resource."""
    columns = ("WRITER", "RESOURCE", "OBJECTS", "WRITES", "IDLE", "EVERY", "FIELDS")
    return table_lines(columns, [_row(writer) for writer in found])


def blame_lines(found: Sequence[tuple[str, Any, Revision]]) -> list[str]:
    """A row for each field, with the record that set it."""
    columns = ("RECORD", "SET (UTC)", "FIELD", "VALUE", "BY", "")  # the last one of a narrow table is a remark
    return table_lines(columns, [_blamed(*each) for each in found])


def _blamed(path: str, value: Any, revision: Revision) -> tuple[str, ...]:
    writer = revision.written.manager or "(not said)"
    by = f"{writer} or before" if revision.is_listed else writer
    said = "redacted" if is_redacted(value) else shown(value)
    return str(revision.sequence), f"{revision.time.astimezone(UTC):%Y-%m-%d %H:%M:%S}", path, said, by, ""


def contests_lines(found: Sequence[Contested]) -> list[str]:
    """A row for each field that a manager sets back after another."""
    if not found:
        return ["no field manager undoes what another one writes"]
    columns = ("WRITER", "UNDOES", "TIMES", "OBJECTS", "RESOURCE", "FIELD")
    return table_lines(
        columns, [(w.manager, w.undoes, str(w.times), str(w.objects), w.resource, w.field) for w in found]
    )


def _row(writer: ManagerWrites) -> tuple[str, ...]:
    fields = [f"{name} ({count})" for name, count in writer.fields.items()]
    more = [f"{len(fields) - _FIELDS} more"] if len(fields) > _FIELDS else []
    return (
        writer.manager or "(not said)",
        writer.resource,
        str(writer.objects),
        str(writer.writes),
        str(writer.idle),
        _every(writer.period),
        ", ".join(fields[:_FIELDS] + more),
    )


def _every(period: Period | None) -> str:
    return "" if period is None else f"{period.seconds:.3g} s ± {round(period.spread_seconds, 3):.2g}"
