"""What happened to objects, read from the log and printed."""

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml

from levelog.errors import ConfigurationError
from levelog.records import LoggedRecord, ReceiptNoted, TargetSighted
from levelog_cli.compose.recordsources import RecordSource, opened_source, refuse_beyond
from levelog_cli.settings import Settings
from levelog_cli.timeline import Timeline
from levelog_history.moments import Moment
from levelog_history.revisions import Missing, Revision, Revisions
from levelog_history.selection import Selected, has_any, label_selector


async def show_history(
    settings: Settings,
    objects: Sequence[str],
    *,
    bundle: Path | None = None,
    selector: str,
    since: str,
    is_followed: bool,
    has_receipts: bool,
    as_json: bool,
) -> None:
    """Print the revisions of the objects in the order of the log, and receipts of writes if asked for.

    Raises ConfigurationError if something cannot be read, or the log holds no such object.
    """
    selected = [Selected.parse(text) for text in objects]
    is_labelled = label_selector(selector)
    start = Moment.parse(since, datetime.now(UTC)) if since else Moment()
    timeline = Timeline(is_named=len(selected) > 1 or selected[0].key is None)
    has_any_entry = False
    async with opened_source(settings, bundle) as source:
        await _tell_beginning(source, as_json=as_json)
        records = source.about(selected, has_receipts=has_receipts, is_followed=is_followed)
        async for entry, logged in _entries(records, selected):
            if isinstance(entry, Revision) and not is_labelled(_labelled(entry)):
                continue
            has_any_entry |= not isinstance(entry, Missing)
            if since and not start.precedes(logged):
                continue
            if as_json:
                sys.stdout.write(msgspec.json.encode(_json(entry, logged.sequence)).decode() + "\n")
            else:
                sys.stdout.writelines(f"{line}\n" for line in timeline.lines(entry, logged.sequence))
            if is_followed:
                sys.stdout.flush()
        if not has_any_entry:
            raise ConfigurationError(_nothing(source, selected, selector))


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
        async for entry, logged in _entries(source.about(selected), selected):
            if not isinstance(entry, Revision) or entry.happened == "unreadable":
                continue
            first = first or entry
            if moment.precedes(logged):
                break
            last = entry
        if first is None:
            raise ConfigurationError(_nothing(source, selected, ""))
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


async def _entries(
    records: AsyncIterator[LoggedRecord], selected: Sequence[Selected]
) -> AsyncIterator[tuple[Revision | Missing | ReceiptNoted | TargetSighted, LoggedRecord]]:
    revisions = Revisions(lambda key: has_any(selected, key))
    async for logged in records:
        record = logged.record
        if isinstance(record, ReceiptNoted | TargetSighted):
            if has_any(selected, record.parent) or has_any(selected, record.target):
                yield record, logged
            continue
        for entry in revisions.take(logged):
            yield entry, logged


def _labelled(revision: Revision) -> Mapping[str, Any]:
    return {} if revision.happened == "unreadable" else revision.manifest()


async def _tell_beginning(source: RecordSource, *, as_json: bool) -> None:
    """Say on stderr that older history has expired."""
    first, record, _ = await source.ends()
    if first > 1 and not as_json:
        since = f", {record.record.time:%Y-%m-%d %H:%M:%S} UTC" if record else ""
        sys.stderr.write(f"the log begins with record {first}{since}; what was before has expired\n")


def _nothing(source: RecordSource, selected: Sequence[Selected], selector: str) -> str:
    what = " or ".join(map(str, selected)) + (f" with labels {selector}" if selector else "")
    return (
        f"{source.name} of cluster {source.cluster} holds no record of {what}: it holds what the operators read, "
        "with the full name of the resource as in webs.example.com"
    )


def _time(revision: Revision) -> str:
    return f"{revision.time:%Y-%m-%d %H:%M:%S} UTC"


def _json(entry: Revision | Missing | ReceiptNoted | TargetSighted, sequence: int) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(entry)
    match entry:
        case Revision():
            del told["body"]
            return {"type": "revision", **told}
        case Missing():
            return {"type": "missing", **told}
        case ReceiptNoted() | TargetSighted():
            return {
                "type": "receipt" if isinstance(entry, ReceiptNoted) else "sighting",
                "sequence": sequence,
                **told,
                "parent": str(entry.parent),
                "target": str(entry.target),
            }
