"""Where history begins: from there on the log holds everything that a program reads."""

from collections.abc import Collection

from levelog.wire.objects import GroupResource
from levelog.wire.records import LoggedRecord, SyncFinished, SyncStarted
from levelog.wire.subjects import Control, control_subjects
from levelog_history.moments import Moment
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
