"""Audit logs are read from files, with the bodies that levelog's own log or a bundle has."""

from collections.abc import Sequence
from pathlib import Path

from levelog.errors import ConfigurationError
from levelog_history.records import RecordSource
from levelog_history.selection import Selected
from levelog_wakes.answer import WakesFound, answer
from levelog_wakes.audit import AuditReader, Remarks
from levelog_wakes.bursts import Bursts
from levelog_wakes.recorded import take_with_records
from levelog_wakes.streams import read_ahead


async def found_wakes(files: Sequence[Path], *, client: str = "", source: RecordSource | None = None) -> WakesFound:
    """What the files say; `client` is a part of a name. Raises ConfigurationError for what cannot be read."""
    reader, bursts = AuditReader(Remarks()), Bursts(client)
    calls = read_ahead(files, reader)
    if source is None:
        for call in calls:
            bursts.take(call)
    else:
        selected = [Selected.parse(each) for each in await source.resources()]
        if not selected:
            raise ConfigurationError(f"{source.name} has no list of a resource: leave --log and --bundle out")
        await take_with_records(calls, source.about(selected), bursts, reader.remarks)
    return answer(bursts, reader)
