"""Reading levels from SQL and printing them."""

import difflib
import sys
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.errors import ConfigurationError
from levelog.wire.objects import CLUSTER_SCOPE
from levelog_cli.printing.tables import is_narrow, print_table
from levelog_cli.servers.databases import open_to_read
from levelog_cli.settings import Settings
from levelog_history.differences import drift_text
from levelog_store.look.contact import UnreadableRecord, read_errors, read_unreadable
from levelog_store.look.overview import LevelLine, find_scopes, read_level_lines, read_levelled
from levelog_store.rows import Scope

_NAMED: Final = 5
_SEARCHED: Final = 1000
"""Among so many parents those are looked for that are named like a mistyped one."""

STATUSES: Final = ("in_sync", "drifting", "settling", "failed", "blocked", "deleting")


class LevelFilter(Struct, frozen=True, kw_only=True):
    """Which levels are shown; what is empty leaves all in."""

    name: str = ""
    """A parent, or how its name ends."""
    view: str = ""
    status: str = ""

    def has(self, view: str, parent: str) -> bool:
        """Tell whether a level is among them, whatever its status."""
        return self.view in ("", view, view.partition("/")[2]) and (
            self.name in ("", parent) or parent.endswith(f"/{self.name}")
        )


def print_levels(rows: Sequence[tuple[str, ...]], *, has_several: bool) -> None:
    """Print rows of application, view, parent, status, round, drift and reason; the first if there are several."""
    columns = ("APPLICATION", "VIEW", "PARENT", "STATUS", "ROUND", "DRIFT", "REASON")
    print_table(columns[not has_several :], [row[not has_several :] for row in rows])


def refuse_status(status: str) -> None:
    """Raise ConfigurationError for a status that there is none of."""
    if status and status not in STATUSES:
        raise ConfigurationError(f"there is no status {status!r}: it is one of {', '.join(STATUSES)}")


async def show_levels(settings: Settings, wanted: LevelFilter, *, as_json: bool) -> None:
    """Print the levels that are selected, of all applications that the settings select.

    Raises ConfigurationError for a view or parent that there is none of, naming those that there are, and if
    the database holds no such application.
    """
    name, view, status = wanted.name, wanted.view, wanted.status
    found: list[tuple[Scope, LevelLine]] = []
    skipped: list[UnreadableRecord] = []
    silent: list[tuple[str, str]] = []
    async with await open_to_read(settings) as database, database.reading() as connection:
        scopes = selected_scopes(settings, database.name, await find_scopes(connection))
        for scope in scopes:
            lines = await read_level_lines(connection, scope, view=view, status=status, name=name)
            found += [(scope, line) for line in lines]
            skipped += await read_unreadable(connection, scope)
            silent += await read_errors(connection, scope)
        if not found and (name or view):
            await refuse_unknown(connection, scopes, name, view)
    if as_json:
        sys.stdout.write(msgspec.json.encode([_json(*row) for row in found]).decode() + "\n")
        return
    if not found:
        nothing = f"no level is {status}" if status else "no levels: no object of a view's resource was seen yet"
        sys.stdout.write(f"{nothing}\n{_silent(silent)}{_skipped(skipped)}")
        return
    print_levels([_row(scope, line) for scope, line in found], has_several=len(scopes) > 1)
    if is_narrow() and any(f"/{CLUSTER_SCOPE}/" in line.parent for _, line in found):
        sys.stdout.write(f"\n{CLUSTER_SCOPE} stands for no namespace\n")
    sys.stdout.write(_silent(silent) + _skipped(skipped))


def _silent(inputs: Sequence[tuple[str, str]]) -> str:
    """What the levels do not hear of now, a line each."""
    if not inputs:
        return ""
    lines = [f"{resource}: {error}" for resource, error in inputs]
    return "\n".join(["", "nothing is heard now of what follows; the levels go on with what was known:", *lines, ""])


def _skipped(records: Sequence[UnreadableRecord]) -> str:
    """What the levels do not know of, a line each."""
    if not records:
        return ""
    what = "1 record cannot be read" if len(records) == 1 else f"{len(records)} records cannot be read"
    lines = [f"{record.place}: {record.error}" for record in records[:_NAMED]]
    if len(records) > _NAMED:
        lines.append(f"and {len(records) - _NAMED} more")
    return "\n".join(["", f"{what}; the levels do not know what is in there:", *lines, ""])


async def refuse_unknown(connection: AsyncConnection, scopes: list[Scope], name: str, view: str) -> None:
    """Raise ConfigurationError unless there are levels of the view, and of the parent."""
    views: set[str] = set()
    parents: set[str] = set()
    is_known = False
    for scope in scopes:
        in_scope = await read_levelled(connection, scope, most=_SEARCHED)
        views.update(in_scope[0])
        parents.update(in_scope[1])
        is_known |= bool(name and await read_level_lines(connection, scope, name=name))
    if view and views and not any(view in (known, known.partition("/")[2]) for known in views):
        raise ConfigurationError(f"no level of a view {view!r}; there are levels of {_few(view, views)}")
    if name and parents and not is_known:
        raise ConfigurationError(f"no level of a parent {name!r}; there are levels of {_few(name, parents)}")


def _few(wanted: str, known: set[str]) -> str:
    """The names that are most like the wanted one, and how many more there are."""
    alike = difflib.get_close_matches(wanted, known, n=_NAMED, cutoff=0.0)
    more = len(known) - len(alike)
    return ", ".join(alike) + (f" and {more} more" if more else "")


def selected_scopes(settings: Settings, database: str, scopes: list[Scope]) -> list[Scope]:
    """Those of the applications in the database that the settings name. Raises ConfigurationError if there are none."""
    selected = [
        scope
        for scope in scopes
        if settings.application in ("", scope.application) and settings.cluster in ("", scope.cluster)
    ]
    if not scopes:
        raise ConfigurationError(f"database {database} holds no application yet: `levelog run FILE` makes one")
    if not selected:
        held = ", ".join(f"{scope.application} on {scope.cluster}" for scope in scopes)
        raise ConfigurationError(f"database {database} holds no such application; it holds: {held}")
    return selected


def _row(scope: Scope, line: LevelLine) -> tuple[str, ...]:
    return (scope.application, line.view, line.parent, line.status, str(line.round), _drift(line), line.reason)


def _drift(line: LevelLine) -> str:
    return drift_text(msgspec.json.decode(line.drift, type=dict[str, list[str]]) if line.drift else {})


def _json(scope: Scope, line: LevelLine) -> dict[str, Any]:
    return {
        "cluster": scope.cluster,
        "application": scope.application,
        "view": line.view,
        "parent": line.parent,
        "status": line.status,
        "reason": line.reason,
        "drift": msgspec.json.decode(line.drift) if line.drift else None,
        "round": line.round,
        "evaluated_at": line.evaluated_at,
        "writes": line.writes,
    }
