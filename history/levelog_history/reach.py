"""How far history reaches: where it begins and ends, and what to say of what it does not hold."""

from collections.abc import Collection, Sequence

from levelog.errors import ConfigurationError
from levelog.wire.objects import GroupResource
from levelog.wire.records import LoggedRecord, SyncFinished, SyncStarted
from levelog.wire.subjects import Control, control_subjects
from levelog_history.moments import Moment
from levelog_history.names import meant
from levelog_history.records import RecordSource
from levelog_history.selection import Selected
from levelog_log.reader import Reader
from levelog_log.stream import LogStream


async def beginning(stream: LogStream, resources: Collection[str]) -> Moment | None:
    """The end of the oldest complete list of all the resources; the first record of a log that has lost none.

    None: there is no such moment yet. A list is complete if it began in the log, in each partition.
    """
    state = await stream.state()
    if state.first_seq <= 1:
        return Moment(sequence=1)
    begun: set[tuple[int, str, str]] = set()
    ends: dict[tuple[int, str], LoggedRecord] = {}
    wanted = {(partition, name) for partition in range(stream.partitions) for name in resources}
    subjects = [control_subjects(stream.cluster, Control.SYNC, GroupResource.parse(name)) for name in sorted(resources)]
    last = 0
    for subject in subjects:
        found = await stream.last_record(subject)
        last = max(last, found.sequence if found else 0)
    async with Reader(stream, subjects=subjects) as reader:
        while reader.position < last and not wanted <= ends.keys():
            for logged in await reader.next_batch():
                record = logged.record
                if isinstance(record, SyncStarted):
                    begun.add((logged.partition, str(record.resource), record.sync_id))
                elif isinstance(record, SyncFinished):
                    place = logged.partition, str(record.resource)
                    if (*place, record.sync_id) in begun:
                        ends.setdefault(place, logged)
    if not wanted <= ends.keys():
        return None
    end = max((ends[place] for place in wanted), key=lambda logged: logged.sequence)
    return Moment(sequence=end.sequence, time=end.record.time)


async def refuse_beyond(source: RecordSource, moment: Moment) -> None:
    """Raise ConfigurationError for a moment after the last record, or before the first."""
    first, record, last = await source.ends()
    if moment.time is None and moment.sequence > last:
        raise ConfigurationError(f"{source.name} ends at sequence {last}, before {moment}")
    if record is not None and moment.precedes(record):
        raise ConfigurationError(
            f"{moment} is before {source.name} begins: its first record is {first}, of "
            f"{record.record.time:%Y-%m-%d %H:%M:%S} UTC"
        )


def refuse_expired(first: Moment | None, moment: Moment | None) -> None:
    """Raise ConfigurationError for a moment before `first`, from which on everything is known; None: there is none."""
    if first is None:
        raise ConfigurationError(
            "older records have expired, and the log holds no complete list since: nothing can be rebuilt from it yet"
        )
    if moment is not None and first.is_later(moment):
        at = f" ({first.time:%Y-%m-%d %H:%M:%S} UTC)" if first.time else ""
        raise ConfigurationError(
            f"{moment} is before history begins: what was before sequence {first.sequence}{at} has expired; "
            "that is the first moment that can be given"
        )


async def nothing_of(source: RecordSource, selected: Sequence[Selected], selector: str = "") -> str:
    """A sentence that says that there is no record of what was selected, and why that may be."""
    what = " or ".join(map(str, selected)) + (f" with labels {selector}" if selector else "")
    nothing = f"{source.name} of cluster {source.cluster} holds no record of {what}"
    for resource in dict.fromkeys(each.resource for each in selected):
        if why := await unread(source, resource):
            return f"{nothing}: {why}"
    for each in selected:
        if each.namespace and not each.name:
            return (
                f"{nothing}, which means all {each.resource} of a namespace {each.namespace}: one object is "
                f"{each.resource}/NAMESPACE/NAME, with _ for no namespace"
            )
    return f"{nothing}: there was none while {source.name} was written"


async def unread(source: RecordSource, resource: GroupResource) -> str:
    """What to say of a resource of which there are no records; nothing if there are, or that is not known."""
    held = await source.resources()
    name = str(resource)
    if not held or name in held:
        return ""
    close = meant(name, held)
    return f"recorded is what the operators read: {', '.join(held)}" + (f" (did you mean {close}?)" if close else "")
