"""History of an application, written into a file."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from levelog.objects import ObjectKey
from levelog_cli.compose.databases import open_to_read
from levelog_cli.compose.openedlog import opened_log
from levelog_cli.compose.replay import recorded_scope, refuse_moments
from levelog_cli.settings import Settings
from levelog_history.moments import Moment
from levelog_history.selection import Selected, has_any
from levelog_replay.beginning import beginning
from levelog_replay.exporting import export
from levelog_replay.history import open_history
from levelog_replay.selecting import Selection
from levelog_store.held import read_syncs


async def export_history(
    settings: Settings, file: Path, *, start: str, end: str, objects: Sequence[str]
) -> tuple[int, int]:
    """Write a bundle; returns how many records and decisions are in it.

    Raises ConfigurationError if it cannot be written, or for objects and moments that there is nothing of.
    """
    now = datetime.now(UTC)
    selected = [Selected.parse(text) for text in objects]

    def has(key: ObjectKey) -> bool:
        return not selected or has_any(selected, key)

    selection = Selection(
        start=Moment.parse(start, now) if start else None,
        end=Moment.parse(end, now) if end else None,
        has_parent=has,
    )
    async with opened_log(settings) as stream, await open_to_read(settings) as database:
        scope = await recorded_scope(settings, database, stream, settings.application)
        history = await open_history(stream, database, scope)
        async with database.reading() as connection:
            resources = {resource for _, resource in await read_syncs(connection, scope.number)}
        first = await beginning(stream, resources)
        refuse_moments(history, first, selection)
        return await export(
            history, file, resources=resources, begins=first or Moment(sequence=history.first), selection=selection
        )
