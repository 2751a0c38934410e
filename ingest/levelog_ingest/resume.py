"""Where to go on: found out from the log itself, so that ingest keeps nothing of its own."""

from datetime import datetime
from typing import TypeAlias

from msgspec import Struct

from levelog.objects import Version
from levelog.records import BookmarkNoted, GapNoted, LoggedRecord, ObjectDeleted, ObjectSeen, Record, SyncFinished
from levelog.subjects import Control, control_subjects, resource_subjects
from levelog_ingest.watched import WatchedResource
from levelog_log.stream import LogStream


class ResumeAt(Struct, frozen=True, kw_only=True):
    """Watch on from this version; the log holds everything up to it."""

    version: Version
    listed_at: datetime
    """When the last complete list ended."""


class ListFirst(Struct, frozen=True, kw_only=True):
    """List before watching, and why."""

    reason: str


Decision: TypeAlias = ResumeAt | ListFirst


async def find_resume_point(stream: LogStream, watched: WatchedResource) -> Decision:
    """Look up the last records of a resource and decide. Raises Unavailable."""
    cluster, resource = stream.cluster, watched.resource
    return decide(
        watched.namespace,
        sync=await stream.last_record(control_subjects(cluster, Control.SYNC, resource)),
        gap=await stream.last_record(control_subjects(cluster, Control.GAP, resource)),
        seen=await stream.last_record(resource_subjects(cluster, resource)),
        bookmark=await stream.last_record(control_subjects(cluster, Control.BOOKMARK, resource)),
    )


def decide(
    namespace: str,
    *,
    sync: LoggedRecord | None,
    gap: LoggedRecord | None,
    seen: LoggedRecord | None,
    bookmark: LoggedRecord | None,
) -> Decision:
    """The highest version among the last finished list, and the watch record and the bookmark after it.

    The arguments are the last records of each kind about a resource. A list comes first if none was finished, the last
    one was not finished or covered other namespaces, or history is missing since. The lookups need not be of one
    moment: what is found too early makes the watch begin too early, which only repeats records.
    """
    if sync is None:
        return ListFirst(reason="nothing is recorded yet")
    finished = sync.record
    if not isinstance(finished, SyncFinished):
        return ListFirst(reason="the last list was not finished")
    if finished.namespace != namespace:
        return ListFirst(reason=f"the last list was of {_scope(finished.namespace)}, now it is {_scope(namespace)}")
    if gap is not None and isinstance(gap.record, GapNoted) and gap.sequence > sync.sequence:
        return ListFirst(reason="there was a gap after the last list")
    version = finished.version
    for later in (seen, bookmark):
        if later is not None and later.sequence > sync.sequence:
            version = max(version, _watched_to(later.record))
    return ResumeAt(version=version, listed_at=finished.time)


def _watched_to(record: Record) -> Version:
    """Up to where a record says that everything was seen; a listed object says nothing, as a list is in no order."""
    match record:
        case ObjectSeen(origin="watch") | ObjectDeleted(origin="watch") | BookmarkNoted():
            return record.version
        case _:
            return Version(0)


def _scope(namespace: str) -> str:
    return f"namespace {namespace}" if namespace else "all namespaces"
