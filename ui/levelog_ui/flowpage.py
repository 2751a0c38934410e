"""The page of the flow: rate and lag of each stage, from the watch to the outcome of writes, and of each partition."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from levelog_base.counting import counted
from levelog_base.wire.objects import Sequence as LogSequence
from levelog_base.wire.records import BookmarkNoted, LoggedRecord, ObjectDeleted, ObjectSeen, ReceiptNoted
from levelog_base.wire.subjects import stream_subjects
from levelog_log.reader import read_up_to_now
from levelog_store.look.contact import WatchedInput, read_inputs, read_unreadable
from levelog_store.look.levelpages import OUT_OF_SYNC, count_levels
from levelog_store.look.progress import PartitionProgress, count_decided, read_progress
from levelog_ui.past import LivePast
from levelog_ui.times import span

_WINDOW: Final = 1000
"""Records at the end of the log from which rates are counted."""
_MINUTE: Final = timedelta(minutes=1)
_QUIET: Final = timedelta(minutes=2)
"""Twice the time between two bookmarks, as for `levelog levels`."""
_SLOW: Final = timedelta(seconds=30)
"""A write that is open or unseen for so long is worth a look."""
_MOST_WRITERS: Final = 8


class FlowStage(Struct, frozen=True):
    """A stage in the picture."""

    name: str
    rate: str
    lag: str
    """The backlog; the line that is coloured."""
    detail: str
    state: str
    """`well`, `late` or `broken`."""


async def flow_page(past: LivePast) -> dict[str, Any]:
    """The values of the template, as of now."""
    now = datetime.now(UTC)
    stream = past.stream
    state = await stream.state()
    window = await _window(past, state.last_seq)
    seconds = _seconds(window, now)
    recent = [each for each in window if each.record.time >= now - timedelta(seconds=seconds)]
    first = await stream.record_at(LogSequence(state.first_seq))
    since = f"since {first.record.time:%Y-%m-%d %H:%M}" if first else "empty"
    applications = []
    async with past.database.reading() as connection:
        for scope in past.scopes:
            progress = await read_progress(connection, scope)
            contacts = await read_inputs(connection, scope)
            decided = await count_decided(connection, scope, _MINUTE)
            levels = await count_levels(connection, scope)
            behind = _behind(progress, window)
            applications.append(
                {
                    "name": scope.application,
                    "partitions": _partitions(progress, window, recent, behind, seconds),
                    "contacts": contacts,
                    "unreadable": await read_unreadable(connection, scope),
                    "stages": [
                        _watch(contacts, recent, seconds, now),
                        FlowStage("log", _rate(len(recent), seconds), counted(state.messages, "record"), since, "well"),
                        _fold(progress, behind, now),
                        _decide(progress, decided, levels),
                        *_writes(progress, recent, seconds, now),
                    ],
                }
            )
    writers = Counter(
        (each.record.written.manager or "(not said)", str(each.record.key.group_resource))
        for each in recent
        if isinstance(each.record, ObjectSeen) and each.record.origin == "watch"
    )
    return {"applications": applications, "seconds": seconds, "writers": writers.most_common(_MOST_WRITERS)}


async def _window(past: LivePast, last: int) -> list[LoggedRecord]:
    start = LogSequence(max(1, last - _WINDOW + 1))
    subject = stream_subjects(past.stream.cluster)
    return [each async for each in read_up_to_now(past.stream, subject, start=start)]


def _seconds(window: Sequence[LoggedRecord], now: datetime) -> float:
    """The time that rates are counted over: a minute, or less where the window does not reach back so far."""
    if len(window) < _WINDOW:
        return _MINUTE.total_seconds()
    return min(_MINUTE.total_seconds(), max(1.0, (now - window[0].record.time).total_seconds()))


def _rate(count: int, seconds: float) -> str:
    rate = count / seconds
    return f"{rate:.0f}/s" if rate >= 10 else f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.0f}/min"


def _behind(progress: Sequence[PartitionProgress], window: Sequence[LoggedRecord]) -> dict[int, list[LoggedRecord]]:
    """Records that are in the log and not in the tables, by partition."""
    folded = {each.partition: each.folded for each in progress}
    found: dict[int, list[LoggedRecord]] = {}
    for each in window:
        if each.sequence > folded.get(each.partition, each.sequence):
            found.setdefault(each.partition, []).append(each)
    return found


def _watch(
    contacts: Sequence[WatchedInput], recent: Sequence[LoggedRecord], seconds: float, now: datetime
) -> FlowStage:
    seen = sum(isinstance(each.record, ObjectSeen | ObjectDeleted) for each in recent)
    errors = [each.resource for each in contacts if each.error]
    heard = [each.heard_at for each in contacts if each.heard_at is not None]
    age = now - min(heard) if heard else None
    lag = f"heard {span(age)} ago" if age is not None else "nothing heard yet"
    if errors:
        lag = f"nothing heard of {', '.join(errors)}"
    is_quiet = age is None or age > _QUIET
    state = "broken" if errors else "late" if is_quiet else "well"
    return FlowStage("watch", _rate(seen, seconds), lag, counted(len(contacts), "resource"), state)


def _fold(progress: Sequence[PartitionProgress], behind: dict[int, list[LoggedRecord]], now: datetime) -> FlowStage:
    count = sum(map(len, behind.values()))
    oldest = min((some[0].record.time for some in behind.values()), default=now)
    free = sum(not each.owner for each in progress)
    lag = f"{counted(count, 'record')} behind, {span(now - oldest)}" if count else "nothing behind"
    if free:
        lag = f"{counted(free, 'partition')} without a processor"
    owners = len({each.owner for each in progress if each.owner})
    state = "broken" if free else "late" if now - oldest > _SLOW else "well"
    return FlowStage("fold", counted(len(progress), "partition"), lag, counted(owners, "processor"), state)


def _decide(progress: Sequence[PartitionProgress], decided: int, levels: dict[str, int]) -> FlowStage:
    due, failed = sum(each.due for each in progress), levels.get("failed", 0)
    out = sum(levels.get(each, 0) for each in OUT_OF_SYNC)
    lag = f"{counted(due, 'level')} to look at" if due else "none waits"
    if failed:
        lag = f"{counted(failed, 'level')} failed"
    detail = f"{out} of {sum(levels.values())} not in sync"
    return FlowStage("decide", _rate(decided, _MINUTE.total_seconds()), lag, detail, "broken" if failed else "well")


def _writes(
    progress: Sequence[PartitionProgress], recent: Sequence[LoggedRecord], seconds: float, now: datetime
) -> tuple[FlowStage, FlowStage]:
    receipts = [each.record for each in recent if isinstance(each.record, ReceiptNoted) and not each.record.is_repeated]
    failed = sum(each.outcome == "failed" for each in receipts)
    is_open, unseen = (sum(getattr(each, name) for each in progress) for name in ("open", "unseen"))
    oldest = min((each.oldest_at for each in progress if each.oldest_at is not None), default=now)
    state = "late" if now - oldest > _SLOW else "well"
    age = f", oldest {span(now - oldest)}" if is_open or unseen else ""
    lag = f"{is_open} open{age}" if is_open else "none open"
    refused = f"{failed} of {len(receipts)} refused" if failed else "none refused"
    is_late = "broken" if failed else state if is_open else "well"
    awaited = f"oldest {span(now - oldest)}" if unseen else "nothing awaited"
    rate = f"{unseen} unseen" if unseen else "all seen"
    return (
        FlowStage("write", _rate(len(receipts), seconds), lag, refused, is_late),
        FlowStage("seen", rate, awaited, "in the log again", state if unseen else "well"),
    )


def _partitions(
    progress: Sequence[PartitionProgress],
    window: Sequence[LoggedRecord],
    recent: Sequence[LoggedRecord],
    behind: dict[int, list[LoggedRecord]],
    seconds: float,
) -> list[dict[str, Any]]:
    counts = Counter(int(each.partition) for each in recent if not isinstance(each.record, BookmarkNoted))
    most = max(counts.values(), default=1)
    last = {int(each.partition): int(each.sequence) for each in window}
    return [
        {
            "progress": each,
            "rate": _rate(counts[each.partition], seconds),
            "share": counts[each.partition] / most,
            "last": last.get(each.partition, each.folded),
            "behind": len(behind.get(each.partition, ())),
        }
        for each in progress
    ]
