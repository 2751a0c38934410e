"""Explains a level: each decision with its causes, its changes, and the outcome of its writes."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import Struct

from levelog.levels import LevelStatus
from levelog_base.wire.records import LoggedRecord, ReceiptNoted
from levelog_history.differences import Difference, differences
from levelog_history.happenings import Entry, Happened
from levelog_history.revisions import Revision
from levelog_store.decide.decisions import Decision, PastIntent, Read
from levelog_store.look.queues import Queue
from levelog_store.rows import ERRORS, WHOLE_INDEX

_SLACK: Final = timedelta(minutes=5)
"""A record that is so much younger than the decision did not lead to it: it is of another log."""


class CausingRecord(Struct, frozen=True, kw_only=True):
    """A record that led to a decision."""

    sequence: int
    entries: list[Entry] = []
    """The changes in it; none where it has expired, or is no change of an object."""
    record: LoggedRecord | None = None
    """The record itself, where it is no entry."""


class ReadChange(Struct, frozen=True, kw_only=True):
    """A key with other values than at the decision before, or that was read for the first time."""

    index: str
    key: str
    version: int
    """Sequence of the record that changed it."""
    is_first: bool
    removed: list[Any] = []
    added: list[Any] = []
    is_kept: bool = True
    """Whether the values are known; long ones are not stored."""


class ExplainedWrite(Struct, frozen=True, kw_only=True):
    """An intent, with the records that tell what became of it."""

    intent: PastIntent
    receipt: ReceiptNoted | None = None
    receipt_sequence: int = 0
    shown: Revision | None = None
    """The first revision of the target in which the log showed the write."""
    queue: Queue | None = None
    """Queue that a call waits in while others of its effect are under way."""


class LevelStatusChange(Struct, frozen=True, kw_only=True):
    """A level that a view saw, at the decision before and at this one; empty: not there."""

    level: str
    """`shops/webs`, or `shops/pods of webs.example.com/default/one`."""
    before: str
    after: str


class Explained(Struct, frozen=True, kw_only=True):
    """One decision."""

    decision: Decision
    before: Decision | None
    causes: list[CausingRecord]
    reads: list[ReadChange]
    level_statuses: list[LevelStatusChange]
    differences: list[Difference]
    """Differences of desired and actual from the decision before."""
    writes: list[ExplainedWrite]

    @property
    def is_of_other_code(self) -> bool:
        """Whether other code made the decision before."""
        return self.before is not None and self.before.fingerprint != self.decision.fingerprint


def explain(
    decisions: Sequence[Decision],
    intents: Mapping[str, PastIntent],
    happened: Happened,
    queues: Mapping[str, Queue] = MappingProxyType({}),
) -> list[Explained]:
    """Explain all decisions on one level, in order from the oldest that is kept.

    `queues` are the queues of its waiting calls, by the keys of their intents.
    """
    known: dict[tuple[str, str], Read] = {}
    held: dict[tuple[str, str], bytes | None] = {}
    found: list[Explained] = []
    before: Decision | None = None
    seen: dict[str, str] = {}
    for decision in decisions:
        if before is not None and before.parent_uid != decision.parent_uid:
            before = None
            known.clear()
            held.clear()
            seen.clear()
        found.append(
            Explained(
                decision=decision,
                before=before,
                causes=[_cause(sequence, decision, happened) for sequence in decision.causes.sequences],
                reads=_read_changes(decision, known, held),
                level_statuses=_status_changes(decision, seen),
                differences=differences(_level(before), _level(decision)),
                writes=[_write(intents[key], happened, queues.get(key)) for key in decision.intents if key in intents],
            )
        )
        before = decision
    return found


def is_news(explained: Explained) -> bool:
    """Tell whether something is another than before: the level, its status, or that something is written."""
    before = explained.before
    return bool(
        before is None
        or explained.differences
        or explained.decision.intents
        or before.status != explained.decision.status
    )


def is_quiet(explained: Explained) -> bool:
    """Tell whether a decision only takes note of how writes go: the status is as before, and nothing is written."""
    before, now = explained.before, explained.decision
    if before is None or now.intents or before.status != now.status:
        return False
    return now.status == "settling" or before.reason == now.reason


def newest_chain(explained: Sequence[Explained]) -> list[Explained]:
    """The decisions that led from the last level at rest to the one that is now."""
    end = len(explained)
    while end > 1 and not is_news(explained[end - 1]):
        end -= 1
    start = end - 1
    while start > 0 and explained[start - 1].decision.status != "in_sync" and explained[start].before is not None:
        start -= 1
    return list(explained[start:end])


def _cause(sequence: int, decision: Decision, happened: Happened) -> CausingRecord:
    entries = happened.entries.get(sequence, [])
    record = happened.others.get(sequence)
    times = [entry.time for entry in entries] + ([record.record.time] if record else [])
    if any(time - decision.decided_at > _SLACK for time in times):
        return CausingRecord(sequence=sequence)
    return CausingRecord(sequence=sequence, entries=entries, record=record)


def _read_changes(
    decision: Decision,
    known: dict[tuple[str, str], Read],
    held: dict[tuple[str, str], bytes | None],
) -> list[ReadChange]:
    """The changes in what is read; takes note of them."""
    if not decision.is_called:
        return []
    changes: list[ReadChange] = []
    for read in decision.reads:
        place = read.index, read.key
        last = known.get(place)
        old = held.get(place)
        new = old if last is not None and last.version == read.version and read.content is None else read.content
        is_first = last is None
        is_moved = last is None or last.version != read.version
        is_told = is_moved and not (is_first and read.version <= 0) and not read.key.startswith(ERRORS)
        if is_told and read.key.startswith(WHOLE_INDEX):
            changes.append(ReadChange(index=read.index, key="", version=read.version, is_first=is_first, is_kept=False))
        elif is_told and (new is None or new != old):
            removed, added = _changed_values(old, new)
            changes.append(
                ReadChange(
                    index=read.index,
                    key=read.key,
                    version=read.version,
                    is_first=is_first,
                    removed=removed,
                    added=added,
                    is_kept=new is not None and (is_first or old is not None),
                )
            )
        held[place] = new
    known.clear()
    known.update({(read.index, read.key): read for read in decision.reads})
    return changes


def _status_changes(decision: Decision, seen: dict[str, str]) -> list[LevelStatusChange]:
    """The changes of other levels; takes note of them."""
    if not decision.is_called:
        return []
    basis = decision.basis
    of_others = {f"{v} of {parent}": each for parent, told in basis.others.items() for v, each in told.items()}
    now = {level: _stands(each) for level, each in (basis.level_statuses | of_others).items()}
    changes = [
        LevelStatusChange(level=level, before=seen.get(level, ""), after=now.get(level, ""))
        for level in sorted(seen.keys() | now.keys())
        if seen.get(level) != now.get(level)
    ]
    seen.clear()
    seen.update(now)
    return changes


def _stands(level_status: LevelStatus) -> str:
    return f"{level_status.status} ({level_status.reason})" if level_status.reason else level_status.status


def _changed_values(old: bytes | None, new: bytes | None) -> tuple[list[Any], list[Any]]:
    before: list[Any] = msgspec.json.decode(old) if old else []
    after: list[Any] = msgspec.json.decode(new) if new else []
    removed, added = list(before), []
    for value in after:
        if value in removed:
            removed.remove(value)
        else:
            added.append(value)
    return removed, added


def _level(decision: Decision | None) -> dict[str, Any]:
    if decision is None:
        return {}
    sides = (("desired", decision.desired), ("actual", decision.actual))
    return {name: msgspec.json.decode(value) for name, value in sides if value is not None}


def _write(intent: PastIntent, happened: Happened, queue: Queue | None) -> ExplainedWrite:
    sequence, receipt = happened.receipts.get(intent.key, (0, None))
    return ExplainedWrite(
        intent=intent, receipt=receipt, receipt_sequence=sequence, shown=_shown(intent, happened), queue=queue
    )


def _shown(intent: PastIntent, happened: Happened) -> Revision | None:
    """The revision that closed the loop: of the target, or of the parent that a call has patched."""
    is_call = intent.verb == "call"
    if not (intent.is_watched or is_call) or not intent.result_version or intent.state == "failed":
        return None
    for _, revision in happened.revisions_of(intent.parent if is_call else intent.target):
        if revision.uid == intent.result_uid and revision.version >= intent.result_version:
            return revision
    return None
