"""The records of the log that tell about some objects, and the moment at which history begins."""

from collections.abc import AsyncIterator, Collection, Sequence

from levelog.wire.objects import GroupResource, Partition
from levelog.wire.records import LoggedRecord, SyncFinished, SyncStarted
from levelog.wire.subjects import Control, control_subjects, list_subjects, resource_subjects
from levelog_history.moments import Moment
from levelog_history.selection import Selected
from levelog_log.reader import Reader, read_up_to_now
from levelog_log.stream import LogStream


async def read_about(
    stream: LogStream, selected: Sequence[Selected], *, receipts: str = "", is_followed: bool = False
) -> AsyncIterator[LoggedRecord]:
    """Records of the selected objects, of lists and gaps of their resources, and receipts under a subject, if given.

    In the order of the log, from its first record to the last that is there now, or for ever. Raises as `Reader` does.
    """
    subjects = _subjects(stream, selected)
    if receipts:
        subjects.append(receipts)
    last = 0
    for subject in subjects:
        record = await stream.last_record(subject)
        last = max(last, record.sequence if record else 0)
    async with Reader(stream, subjects=subjects) as reader:
        while is_followed or reader.position < last:
            for logged in await reader.next_batch():
                if is_followed or logged.sequence <= last:
                    yield logged


async def resources_of(stream: LogStream) -> list[str]:
    """Names of the resources that were listed into the log, sorted; one whose lists have expired is not among them."""
    listed: set[str] = set()
    async for logged in read_up_to_now(stream, list_subjects(stream.cluster, Partition(0))):
        if isinstance(logged.record, SyncStarted | SyncFinished):
            listed.add(str(logged.record.resource))
    return sorted(listed)


def _subjects(stream: LogStream, selected: Sequence[Selected]) -> list[str]:
    """What JetStream is asked for; no two of its filters may overlap."""
    widest = [one for one in dict.fromkeys(selected) if not any(_covers(other, one) for other in selected)]
    subjects = [
        resource_subjects(stream.cluster, each.resource, namespace=each.namespace, name=each.name) for each in widest
    ]
    for resource in dict.fromkeys(each.resource for each in widest):
        subjects += [control_subjects(stream.cluster, kind, resource) for kind in (Control.SYNC, Control.GAP)]
    return subjects


def _covers(wide: Selected, narrow: Selected) -> bool:
    """Tell whether all that one selects is selected by another, wider one."""
    return wide != narrow and (
        wide.resource == narrow.resource and wide.namespace in ("", narrow.namespace) and wide.name in ("", narrow.name)
    )


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
