"""Reading levels from SQL and printing them."""

import sys
from typing import Any, Final

import msgspec

from levelog.errors import ConfigurationError
from levelog_cli.compose.databases import open_to_read
from levelog_cli.settings import Settings
from levelog_cli.tables import print_table
from levelog_store.overview import LevelLine, find_scopes, read_level_lines
from levelog_store.scopes import Scope

STATUSES: Final = ("in_sync", "drifting", "settling", "failed", "blocked", "deleting")


async def show_levels(settings: Settings, *, name: str, view: str, status: str, as_json: bool) -> None:
    """Print the levels that are selected, of all applications that the settings select.

    Raises ConfigurationError for a status that there is none of, and if the database holds no such application.
    """
    if status and status not in STATUSES:
        raise ConfigurationError(f"there is no status {status!r}: it is one of {', '.join(STATUSES)}")
    found: list[tuple[Scope, LevelLine]] = []
    async with await open_to_read(settings) as database, database.reading() as connection:
        scopes = _selected(settings, database.name, await find_scopes(connection))
        for scope in scopes:
            lines = await read_level_lines(connection, scope, view=view, status=status, name=name)
            found += [(scope, line) for line in lines]
    if as_json:
        sys.stdout.write(msgspec.json.encode([_json(*row) for row in found]).decode() + "\n")
        return
    has_several = len(scopes) > 1
    columns = ("APPLICATION", "VIEW", "PARENT", "STATUS", "ROUND", "DRIFT", "REASON")
    rows = [_row(scope, line) for scope, line in found]
    print_table(columns[not has_several :], [row[not has_several :] for row in rows])


def _selected(settings: Settings, database: str, scopes: list[Scope]) -> list[Scope]:
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
    return (scope.application, line.view, line.parent, line.status, str(line.round), _drift(line.drift), line.reason)


def _drift(drift: bytes | None) -> str:
    parts: dict[str, list[str]] = msgspec.json.decode(drift) if drift else {}
    return "; ".join(f"{part} {', '.join(keys)}" for part, keys in parts.items())


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
    }
