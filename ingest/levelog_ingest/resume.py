"""Where a watch goes on: found in the last records of the log, so that ingest keeps no state of its own.

`decide` is pure; the others read the log, and write nothing.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import GroupResource, Partition, Version, is_newer
from levelog_base.wire.records import (
    BookmarkNoted,
    GapNoted,
    HistoryReverted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    Record,
    SyncFinished,
    SyncStarted,
    api_version_of,
)
from levelog_base.wire.subjects import Control, control_subject, control_subjects, resource_subjects
from levelog_ingest.status import WatchedResource
from levelog_log.stream import LogStream


class ResumeAt(Struct, frozen=True, kw_only=True):
    """Watch on from these versions, by namespace, empty for all; the log holds everything up to them."""

    versions: Mapping[str, Version]
    listed_at: datetime
    """When the last complete list ended."""
    seen: Version
    """The highest version of anything in the log: an API server that is below it has another history."""


class ListFirst(Struct, frozen=True, kw_only=True):
    """List before watching, and why."""

    reason: str
    seen: Version = Version(0)


Decision: TypeAlias = ResumeAt | ListFirst


async def find_resume_point(stream: LogStream, watched: WatchedResource) -> Decision:
    """Look up the last records of a resource and decide. Raises Unavailable."""
    cluster, resource = stream.cluster, watched.resource
    return decide(
        watched.namespaces,
        api_version=watched.api_version,
        sync=await stream.last_record(control_subjects(cluster, Control.SYNC, resource)),
        gap=await stream.last_record(control_subjects(cluster, Control.GAP, resource)),
        seen={
            part: await stream.last_record(resource_subjects(cluster, resource, namespace=part))
            for part in watched.parts
        },
        bookmark=await stream.last_record(control_subjects(cluster, Control.BOOKMARK, resource)),
    )


async def holds_list(stream: LogStream, resource: GroupResource) -> bool:
    """Tell whether the log holds all of a list: its beginning, which goes before its objects, and its end.

    Raises Unavailable.
    """
    begun = set[str]()
    async for logged in stream.records_of(control_subject(stream.cluster, Partition(0), Control.SYNC, resource)):
        match logged.record:
            case SyncStarted(sync_id=sync_id):
                begun.add(sync_id)
            case SyncFinished(sync_id=sync_id) if sync_id in begun:
                return True
            case _:
                pass
    return False


def decide(
    namespaces: Sequence[str],
    *,
    api_version: str = "",
    sync: LoggedRecord | None,
    gap: LoggedRecord | None,
    seen: Mapping[str, LoggedRecord | None],
    bookmark: LoggedRecord | None,
) -> Decision:
    """The highest version among the last finished list, and the watch record and the bookmark after it.

    The arguments are the last records of each kind about a resource; `seen` by namespace, empty for all. A list comes
    first if none was finished, if the last one was not finished, covered other namespaces or had an older version of
    the API, or if history is missing since. Raises ConfigurationError if a newer version is recorded.

    The lookups may be of different moments: a record found too early makes the watch begin too early, which only
    repeats records. They may be of different ingesters too: the log has everything up to the version of each record
    before that record.
    """
    highest = _highest(sync, gap, *seen.values(), bookmark)
    if sync is None:
        return ListFirst(reason="nothing is recorded yet", seen=highest)
    finished = sync.record
    if other := _other_version(api_version, sync, *seen.values(), bookmark):
        return ListFirst(reason=f"records are of version {other}, now it is {api_version}", seen=highest)
    if not isinstance(finished, SyncFinished):
        return ListFirst(reason="the last list was not finished", seen=highest)
    if finished.namespaces != tuple(namespaces):
        was, now = _scope(finished.namespaces), _scope(namespaces)
        return ListFirst(reason=f"the last list was of {was}, now it is {now}", seen=highest)
    if gap is not None and isinstance(gap.record, GapNoted | HistoryReverted) and gap.sequence > sync.sequence:
        return ListFirst(reason="there was a gap after the last list", seen=highest)
    versions = {
        part: max(
            (_watched_to(later.record) for later in (last, bookmark) if later and later.sequence > sync.sequence),
            default=finished.version,
        )
        for part, last in seen.items()
    }
    listed = {part: max(version, finished.version) for part, version in versions.items()}
    return ResumeAt(versions=listed, listed_at=finished.time, seen=highest)


def _other_version(api_version: str, sync: LoggedRecord, *later: LoggedRecord | None) -> str:
    """An older version in which the resource was recorded since the last list began; empty: none."""
    for logged in (sync, *(each for each in later if each and each.sequence > sync.sequence)):
        recorded = api_version_of(logged.record)
        if is_newer(recorded, api_version):
            resource = sync.record.resource if isinstance(sync.record, SyncStarted | SyncFinished) else "a resource"
            raise ConfigurationError(
                f"{resource} is recorded in version {recorded}, this process declares {api_version}, which is older"
            )
        if is_newer(api_version, recorded):
            return recorded
    return ""


def _highest(*last: LoggedRecord | None) -> Version:
    """The highest version that the last records of each kind name, of the history that is going on."""
    known = [logged for logged in last if logged is not None]
    begun = max((each.sequence for each in known if isinstance(each.record, HistoryReverted)), default=0)
    return max((_version_of(each.record) for each in known if each.sequence >= begun), default=Version(0))


def _version_of(record: Record) -> Version:
    match record:
        case ObjectSeen() | ObjectDeleted() | SyncFinished() | BookmarkNoted() | HistoryReverted():
            return record.version
        case _:
            return Version(0)


def _watched_to(record: Record) -> Version:
    """Up to where a record says that everything was seen; a listed object says nothing, as a list is in no order."""
    match record:
        case ObjectSeen(origin="watch") | ObjectDeleted(origin="watch") | BookmarkNoted():
            return record.version
        case _:
            return Version(0)


def _scope(namespaces: Sequence[str]) -> str:
    return f"namespace {', '.join(namespaces)}" if namespaces else "all namespaces"
