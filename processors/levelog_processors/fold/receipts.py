"""Receipts in the fold: how they change intents, and what they record about children and effects."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from levelog.effects import Call
from levelog.handlers.children import Remembered
from levelog.handlers.indexers import MARK, applied_place, call_entry
from levelog_base.wire.canonical import canonical
from levelog_base.wire.objects import effect_of
from levelog_base.wire.records import CallNoted, LoggedRecord, ReceiptNoted, TargetObserved
from levelog_processors.fold.entries import change_key
from levelog_processors.fold.foldedobjects import Latest
from levelog_processors.keys import calls_key, kept_call
from levelog_processors.program import Program
from levelog_store.fold.changes import Changes, FoldedReceipt, PriorState, Wake
from levelog_store.rows import Entry, ViewParent


class Receipts:
    """Takes in the receipts and observations of one batch.

    What the last receipt of a target says of it becomes an entry once the batch is through.
    """

    def __init__(self, program: Program, changes: Changes, prior: PriorState, latest: Mapping[str, Latest]) -> None:
        self._program = program
        self._changes = changes
        self._prior = prior
        self._latest = latest
        """Of the same batch, by object."""
        self._memories: dict[tuple[str, str, str], tuple[Memory, LoggedRecord, ReceiptNoted]] = {}
        self._rounds: dict[tuple[str, str, str], int] = {}
        """Of the last receipts, by view, parent and its uid."""

    def note(self, logged: LoggedRecord, record: ReceiptNoted) -> None:
        """Apply a receipt, and wake the level that waits for it."""
        memory = memory_of(record)
        if record.is_repeated:
            if memory is not None and memory.index in self._program.indices and self._is_news(memory):
                self._memories[memory.index, memory.key, memory.object] = memory, logged, record
            return
        has_view = record.view in self._program.views  # the code may have changed since
        self._changes.receipts.append(FoldedReceipt(record=record, sequence=logged.sequence, has_view=has_view))
        if has_view and record.verb != "event":
            self._wake(logged, record)
        is_first = not self._is_behind(record)
        if memory is not None and memory.index in self._program.indices and is_first:
            self._memories[memory.index, memory.key, memory.object] = memory, logged, record

    def observe(self, logged: LoggedRecord, record: TargetObserved) -> None:
        """Take in what the API had of a target; the level that waits for it says so, or goes on."""
        self._changes.observations.append(record)
        if record.view in self._program.views:
            self._wake(logged, record)

    def remember(self) -> None:
        """Write the entries, but none of a parent that is gone, unless the handler of its deletion asks for them."""
        for (index, key, name), (memory, logged, record) in self._memories.items():
            if index not in self._program.handled_deletions and self._is_over(record, logged.sequence):
                continue
            self._changes.entries[index, key, name, 0] = memory.entry
            at = logged.sequence
            change_key(self._changes, memory.entry or Entry(index, key, 0, b""), logged.partition, at, (at,))

    def _is_over(self, record: ReceiptNoted, at: int) -> bool:
        """Tell whether what a receipt tells was forgotten when it came, or is by a later record of the batch."""
        parent, uid = str(record.parent), record.parent_uid
        held, buried = self._prior.objects.get(parent), self._prior.tombstones.get(parent)
        latest = self._latest.get(parent)
        living, ended = held.uid if held is not None else "", buried.uid if buried is not None else ""
        for each in latest.story() if latest is not None else ():
            if each.sequence < at:
                ended = each.record.uid if each.is_deletion else ""
            elif each.is_deletion or (living == uid and each.record.uid != uid):
                return True
            living = "" if each.is_deletion else each.record.uid
        is_left_out = (record.view, parent) in self._changes.gone and parent not in self._changes.calls_forgotten
        return ended == uid or (is_left_out and record.call is None and latest is not None and at < latest.sequence)

    def _is_behind(self, record: ReceiptNoted) -> bool:
        """Tell whether a receipt of a call arrives again after its level has gone on: its content is old.

        A level decides nothing while one of its calls is running.
        """
        level = record.view, str(record.parent), record.parent_uid
        uid, round_ = self._prior.rounds.get(level[:2], ("", 0))
        known = round_ if uid == record.parent_uid else 0
        if level[:2] in self._prior.rounds and known < record.round:
            self._changes.forgotten[f"{record.view} of {record.parent}"] = record.round
        last = self._rounds[level] = max(known, record.round, self._rounds.get(level, 0))
        return record.verb == "call" and record.round < last

    def _is_news(self, memory: "Memory") -> bool:
        """Tell whether a record that repeats a call tells of a newer one than is known."""
        place = memory.index, memory.key, memory.object
        noted = self._memories.get(place)
        prior = [e for e in self._prior.entries_of(memory.object) if (e.index, e.key) == place[:2]]
        known = [noted[0].entry] if noted is not None else prior
        return all(_called_at(entry) < _called_at(memory.entry) for entry in known)

    def _wake(self, logged: LoggedRecord, record: ReceiptNoted | TargetObserved) -> None:
        self._changes.wake((record.view, str(record.parent)), Wake(logged.partition, (logged.sequence,)))


class Memory(Struct, frozen=True):
    """What a receipt changes: one entry, of a target under its parent's name or of a call under its parent's uid."""

    index: str
    key: str
    object: str
    entry: Entry | None
    """None: there is nothing to remember any more."""


def memory_of(record: ReceiptNoted) -> Memory | None:
    """The entry that a receipt makes, or ends; None for receipts that say nothing of the kind."""
    if record.call is not None:
        return _memory_of_call(record, record.call)
    index, key = applied_place(record.view, str(record.parent))
    name = f"{MARK}{record.target}"  # no object's name, so that no record of an object touches the entry
    if record.verb == "delete" and record.outcome in ("written", "gone"):
        return Memory(index, key, name, None)
    if record.applied is None:
        return None
    value = Remembered(parent_uid=record.parent_uid, uid=record.target_uid, applied=record.applied)
    return Memory(index, key, name, Entry(index, key, 0, canonical(value)))


def levels_of_calls(records: Iterable[LoggedRecord], *, with_writes: bool = False) -> set[ViewParent]:
    """View and parent of the levels whose calls, or also whose writes, records tell of."""
    told = (each.record for each in records if isinstance(each.record, ReceiptNoted))
    return {(each.view, str(each.parent)) for each in told if with_writes or each.verb == "call"}


def _called_at(entry: Entry | None) -> datetime:
    return kept_call.decode(entry.value).called_at if entry is not None else datetime.min.replace(tzinfo=UTC)


def _memory_of_call(record: ReceiptNoted, call: CallNoted) -> Memory:
    index, key = effect_of(record.view, record.target), calls_key(record.parent_uid)
    value = Call[Any, Any](
        request=call.request,
        result=call.result,
        name=call.name,
        idempotency_key=record.key,
        called_at=record.called_at or record.time,
        patched=record.target_version,
    )
    return Memory(index, key, call_entry(str(record.parent), call.name), Entry(index, key, 0, canonical(value)))
