"""Who writes objects, counted from the log and printed."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from levelog.errors import ConfigurationError
from levelog_cli.compose.recordsources import LogSource
from levelog_cli.compose.unrecorded import nothing_of
from levelog_cli.printing.tables import print_table
from levelog_cli.servers.nats import opened_log
from levelog_cli.settings import Settings
from levelog_history.moments import Moment
from levelog_history.records import read_about
from levelog_history.revisions import Revision, Revisions
from levelog_history.selection import Selected, has_any
from levelog_history.writers import Period, Writer, Writers

_FIELDS = 4


async def show_writers(settings: Settings, objects: Sequence[str], *, since: str, as_json: bool) -> None:
    """Print a row for each field manager and resource.

    Raises ConfigurationError if something cannot be read, or nobody wrote such an object.
    """
    selected = [Selected.parse(text) for text in objects]
    start = Moment.parse(since, datetime.now(UTC)) if since else Moment()
    revisions = Revisions(lambda key: has_any(selected, key))
    writers = Writers()
    async with opened_log(settings) as stream:
        has_any_record = False
        async for logged in read_about(stream, selected):
            for entry in revisions.take(logged):
                has_any_record = True
                if isinstance(entry, Revision) and start.precedes(logged):
                    writers.take(entry)
        if not has_any_record:
            raise ConfigurationError(await nothing_of(LogSource(stream), selected))
    found = writers.found()
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        return
    if not found:
        when = f" since {start}" if since else ""
        raise ConfigurationError(f"the log shows no write to {' or '.join(map(str, selected))}{when}")
    print_table(
        ("WRITER", "RESOURCE", "OBJECTS", "WRITES", "IDLE", "EVERY", "FIELDS"), [_row(writer) for writer in found]
    )


def _row(writer: Writer) -> tuple[str, ...]:
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
