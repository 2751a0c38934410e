"""Where a source goes on: found out from the log, so that a process that takes over records only what differs."""

from datetime import datetime

from msgspec import Struct

from levelog.wire.objects import GroupResource, Sequence
from levelog.wire.records import BookmarkNoted, ContactLost, SyncFinished, SyncStarted
from levelog.wire.subjects import Control, control_subjects, resource_subjects
from levelog_ingest.sources.holding import Holding
from levelog_log.reader import FIRST, read_up_to_now
from levelog_log.stream import LogStream


class LogState(Struct, kw_only=True):
    """What the log says of a source's records."""

    holding: Holding
    listed_at: datetime | None
    """When the last list ended; None if a list is needed: there is none, or the last one was not finished."""
    is_lost: bool
    """The last that was said is that the source fails."""
    marked_at: datetime | None
    """When it was last said that the source works, or that it fails."""
    writer: str
    """Operator and function that wrote the newest record; empty if there is none."""


async def read_log_state(stream: LogStream, resource: GroupResource) -> LogState:
    """Fold what the log holds of a resource since its last complete list. Raises Unavailable, IdentityMismatch."""
    holding = Holding()
    starts: dict[str, Sequence] = {}
    finished: tuple[Sequence, SyncFinished] | None = None
    ended = Sequence(0)
    last_begun = ""
    async for logged in read_up_to_now(stream, control_subjects(stream.cluster, Control.SYNC, resource)):
        match logged.record:
            case SyncStarted(sync_id=sync_id):
                starts.setdefault(sync_id, logged.sequence)
                last_begun = sync_id
            case SyncFinished() as end:
                holding.reach(end.version)
                finished = (starts.get(end.sync_id, FIRST), end)
                ended = logged.sequence
            case _:
                pass
    start = finished[0] if finished else FIRST
    writer = ""
    async for logged in read_up_to_now(stream, resource_subjects(stream.cluster, resource), start=start):
        holding.fold(logged)
        writer = getattr(logged.record, "written").manager if hasattr(logged.record, "written") else writer  # noqa: B009
    mark = await stream.last_record(control_subjects(stream.cluster, Control.BOOKMARK, resource))
    is_lost = False
    times = [finished[1].time] if finished is not None else []
    if mark is not None and isinstance(mark.record, BookmarkNoted | ContactLost):
        times.append(mark.record.time)
        is_lost = isinstance(mark.record, ContactLost) and mark.sequence > ended
    if mark is not None and isinstance(mark.record, BookmarkNoted):
        holding.reach(mark.record.version)
    is_complete = finished is not None and finished[1].sync_id == last_begun
    return LogState(
        holding=holding,
        listed_at=finished[1].time if finished is not None and is_complete else None,
        is_lost=is_lost,
        marked_at=max(times, default=None),
        writer=writer,
    )
