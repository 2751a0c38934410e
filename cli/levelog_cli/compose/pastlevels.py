"""Levels as they were at a moment, from the decisions that are kept and the log."""

import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from levelog.errors import ConfigurationError
from levelog_cli.compose.levels import LevelFilter, print_levels, selected_scopes
from levelog_cli.compose.recordsources import LogSource, refuse_beyond, refuse_expired
from levelog_cli.servers.databases import open_to_read
from levelog_cli.servers.nats import opened_log
from levelog_cli.settings import Settings
from levelog_history.differences import drift_text
from levelog_history.explaining import is_by
from levelog_history.happenings import read_there
from levelog_history.moments import Moment
from levelog_history.records import beginning
from levelog_store.decide.decisions import Decision
from levelog_store.fold.heldreads import read_syncs
from levelog_store.look.overview import find_scopes
from levelog_store.look.recall import read_newest
from levelog_store.rows import Scope


async def show_levels_at(settings: Settings, wanted: LevelFilter, *, at: str, as_json: bool) -> None:
    """Print the levels that are selected, as of a moment.

    Raises ConfigurationError for a moment that the log does not hold, and a parent or view without a level then.
    """
    moment = Moment.parse(at, datetime.now(UTC))
    found: list[tuple[Scope, Decision]] = []
    async with opened_log(settings) as stream, await open_to_read(settings) as database:
        await refuse_beyond(LogSource(stream), moment)
        resources: set[str] = set()
        async with database.reading() as connection:
            scopes = selected_scopes(settings, database.name, await find_scopes(connection))
            scopes = [scope for scope in scopes if scope.cluster == stream.cluster]
            for scope in scopes:
                resources.update(resource for _, resource in await read_syncs(connection, scope))
                newest = await read_newest(
                    connection, scope, is_by=lambda decision: is_by(moment, decision), until=moment.time
                )
                found += [(scope, each) for each in newest if wanted.has(each.view, each.parent)]
        refuse_expired(await beginning(stream, resources), moment)
        there = await read_there(stream, {each.parent for _, each in found}, moment) if found else {}
    found = [(scope, each) for scope, each in found if there.get(each.parent) == each.parent_uid]
    if not found and (wanted.name or wanted.view):
        raise ConfigurationError(f"there was no level of {wanted.name or wanted.view} at {moment}")
    found = [(scope, each) for scope, each in found if wanted.status in ("", each.status)]
    if as_json:
        sys.stdout.write(msgspec.json.encode([_json(*row) for row in found]).decode() + "\n")
        return
    if not found:
        what = f"no level was {wanted.status}" if wanted.status else "there were no levels"
        sys.stdout.write(f"{what} at {moment}\n")
        return
    rows = [
        (
            scope.application,
            each.view,
            each.parent,
            each.status,
            str(each.round),
            drift_text(each.differing),
            each.reason,
        )
        for scope, each in found
    ]
    print_levels(rows, has_several=len(scopes) > 1)


def _json(scope: Scope, decision: Decision) -> dict[str, Any]:
    return {
        "cluster": scope.cluster,
        "application": scope.application,
        "view": decision.view,
        "parent": decision.parent,
        "status": decision.status,
        "reason": decision.reason,
        "desired": msgspec.Raw(decision.desired or b"null"),
        "actual": msgspec.Raw(decision.actual or b"null"),
        "drift": decision.differing or None,
        "round": decision.round,
        "sequence": decision.sequence,
        "decided_at": decision.decided_at,
    }
