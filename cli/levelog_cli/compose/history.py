"""What happened to objects, read from the log and printed."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import yaml
from msgspec import Struct

from levelog.errors import ConfigurationError
from levelog.wire.records import LoggedRecord, ReceiptNoted, TargetSighted
from levelog_cli.compose.recorddecisions import opened_decisions
from levelog_cli.compose.recordsources import RecordSource, opened_source, refuse_beyond
from levelog_cli.compose.unrecorded import nothing_of
from levelog_cli.printing.timeline import Timeline, plain
from levelog_cli.settings import Settings
from levelog_history.happenings import Entry
from levelog_history.moments import Moment
from levelog_history.revisions import Missing, Revision, Revisions
from levelog_history.selection import Selected, Shown
from levelog_history.timeline import Decided, interleaved

Told: TypeAlias = Entry | Decided


class Wanted(Struct, frozen=True, kw_only=True):
    """What a timeline shows besides revisions, and which part of it."""

    selector: str = ""
    since: str = ""
    is_followed: bool = False
    has_receipts: bool = False
    has_decisions: bool = False


async def show_history(
    settings: Settings, objects: Sequence[str], wanted: Wanted, *, bundle: Path | None = None, as_json: bool
) -> None:
    """Print the revisions of the objects in the order of the log; receipts of writes and decisions if asked for.

    Raises ConfigurationError if something cannot be read, or the log holds no such object.
    """
    if wanted.has_decisions and wanted.is_followed:
        raise ConfigurationError(
            "--follow waits for records, and decisions are none: leave one of --follow and --decisions out"
        )
    selected = [Selected.parse(text) for text in objects]
    shown = Shown(selected, wanted.selector)
    start = Moment.parse(wanted.since, datetime.now(UTC)) if wanted.since else None
    timeline = Timeline(only=str(selected[0]) if len(selected) == 1 and selected[0].key else "")
    has_any_entry = False
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(opened_source(settings, bundle))
        decided: list[AsyncIterator[Decided]] = []
        if wanted.has_decisions:
            decided = await stack.enter_async_context(opened_decisions(settings, source, selected, shown.has))
        await _tell_beginning(source, as_json=as_json)
        if wanted.selector and (wanted.has_receipts or wanted.has_decisions):
            await shown.read_ahead(source.about(selected))  # what made an object stands above its first revision
        records = source.about(selected, has_receipts=wanted.has_receipts, is_followed=wanted.is_followed)
        entries: AsyncIterator[tuple[Told, int]] = _entries(records, shown)
        for one in decided:
            entries = interleaved(entries, one)
        async for entry, sequence in entries:
            has_any_entry |= not isinstance(entry, Missing)
            if start is not None and not _is_after(start, entry, sequence):
                continue
            if as_json:
                told = _decision(entry) if isinstance(entry, Decided) else plain(entry, sequence)
                sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
            else:
                sys.stdout.writelines(f"{line}\n" for line in timeline.lines(entry, sequence))
            if wanted.is_followed:
                sys.stdout.flush()
        if not has_any_entry:
            raise ConfigurationError(await nothing_of(source, selected, wanted.selector))


async def show_object(
    settings: Settings, objects: Sequence[str], *, bundle: Path | None = None, at: str, as_json: bool
) -> None:
    """Print one object as it was at a moment: YAML, or JSON.

    Raises ConfigurationError if it did not exist then, or that moment is older than what the log holds.
    """
    selected = [Selected.parse(text) for text in objects]
    if len(selected) != 1 or (key := selected[0].key) is None:
        raise ConfigurationError("--at prints one object: name it as RESOURCE[.GROUP]/NAMESPACE/NAME")
    moment = Moment.parse(at, datetime.now(UTC))
    last: Revision | None = None
    first: Revision | None = None
    async with opened_source(settings, bundle) as source:
        await refuse_beyond(source, moment)
        async for entry, sequence in _entries(source.about(selected), Shown(selected, "")):
            if not isinstance(entry, Revision) or entry.happened == "unreadable":
                continue
            first = first or entry
            if _is_after(moment, entry, sequence):
                break
            last = entry
        if first is None:
            raise ConfigurationError(await nothing_of(source, selected))
    if last is None:
        raise ConfigurationError(
            f"{key} is not in the log at {moment}: the first record of it is {first.sequence}, at {_time(first)}"
        )
    if last.is_gone:
        raise ConfigurationError(f"{key} did not exist at {moment}: {last.sequence} deleted it, at {_time(last)}")
    if as_json:
        sys.stdout.write(last.body.decode() + "\n")
    else:
        sys.stdout.write(yaml.safe_dump(last.manifest(), sort_keys=False, allow_unicode=True))


async def _entries(records: AsyncIterator[LoggedRecord], shown: Shown) -> AsyncIterator[tuple[Told, int]]:
    revisions = Revisions(shown.selects)
    async for logged in records:
        record = logged.record
        if isinstance(record, ReceiptNoted | TargetSighted):
            if shown.has(str(record.parent)) or shown.has(str(record.target)):
                yield record, logged.sequence
            continue
        for entry in revisions.take(logged):
            if isinstance(entry, Missing) or shown.takes(entry):
                yield entry, logged.sequence


def _is_after(moment: Moment, entry: Told, sequence: int) -> bool:
    if isinstance(entry, Decided):
        return entry.is_after(moment)
    return moment.is_before(sequence, entry.time)


async def _tell_beginning(source: RecordSource, *, as_json: bool) -> None:
    """Say on stderr that older history has expired."""
    first, record, _ = await source.ends()
    if first > 1 and not as_json:
        since = f", {record.record.time:%Y-%m-%d %H:%M:%S} UTC" if record else ""
        sys.stderr.write(f"the log begins with record {first}{since}; what was before has expired\n")


def _time(revision: Revision) -> str:
    return f"{revision.time:%Y-%m-%d %H:%M:%S} UTC"


def _decision(decided: Decided) -> dict[str, Any]:
    decision = decided.decision
    return {
        "type": "decision",
        "after": decided.after,
        "sequence": decision.sequence,
        "time": decision.decided_at,
        "application": decided.application,
        "view": decision.view,
        "parent": decision.parent,
        "parent_uid": decision.parent_uid,
        "before": decision.basis.status,
        "status": decision.status,
        "reason": decision.reason,
        "round": decision.round,
        "drift": decision.differing,
        "causes": decision.causes.sequences,
        "has_more_causes": decision.causes.has_more,
        "is_due": decision.basis.is_due,
        "is_called": decision.is_called,
        "fingerprint": decision.fingerprint,
        "writes": [{"key": each.key, "verb": each.verb, "target": each.target} for each in decided.writes],
    }
