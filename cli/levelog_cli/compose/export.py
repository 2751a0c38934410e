"""History of an application, written into a file."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from levelog.wire.objects import GroupResource
from levelog_cli.compose.replay import recorded_scope
from levelog_cli.compose.replaychoice import refuse_moments
from levelog_cli.printing.progress import RecordBar
from levelog_cli.servers.clusters import read_schemas
from levelog_cli.servers.databases import open_to_read
from levelog_cli.servers.nats import opened_log
from levelog_cli.settings import Settings
from levelog_history.moments import Moment
from levelog_history.records import beginning, read_about
from levelog_history.selection import Selected, Shown
from levelog_replay.bundles.writing import Exported, export
from levelog_replay.sources import Selection, open_history
from levelog_store.fold.heldreads import read_syncs


async def export_history(
    settings: Settings, file: Path, *, start: str, end: str, objects: Sequence[str], selector: str
) -> Exported:
    """Write a bundle; returns what is in it.

    Raises ConfigurationError if it cannot be written, or for objects and moments that there is nothing of.
    """
    now = datetime.now(UTC)
    selected = [Selected.parse(text) for text in objects]
    moments = [Moment.parse(text, now) if text else None for text in (start, end)]
    async with opened_log(settings) as stream, await open_to_read(settings) as database:
        scope = await recorded_scope(settings, database, stream, settings.application)
        history = await open_history(stream, database, scope)
        async with database.reading() as connection:
            resources = {resource for _, resource in await read_syncs(connection, scope)}
        shown = Shown(selected or [Selected(GroupResource.parse(name)) for name in sorted(resources)], selector)
        selection = Selection(start=moments[0], end=moments[1], has_parent=lambda key: shown.has(str(key)))
        first = await beginning(stream, resources)
        refuse_moments(history, first, selection)
        if selector:
            await shown.read_ahead(read_about(stream, shown.selected))
        schemas = await read_schemas(settings, stream.cluster, resources)
        begins = first or Moment(sequence=history.first)
        before = history.first - 1
        async with RecordBar().following("export", history.last - before, lambda: history.read_to - before):
            return await export(history, file, resources=resources, begins=begins, selection=selection, schemas=schemas)
