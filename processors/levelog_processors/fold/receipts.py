"""Receipts as the fold writes them down, and what they say of children and effects."""

from typing import Any

from msgspec import Struct

from levelog.effects import Call
from levelog.handlers.children import Remembered
from levelog.handlers.indexers import MARK, applied_place, call_entry
from levelog.wire.canonical import canonical
from levelog.wire.records import STATE_AFTER, CallNoted, LoggedRecord, ReceiptNoted
from levelog_store.fold.changes import FoldedReceipt
from levelog_store.rows import Entry


def folded_receipt(record: ReceiptNoted, logged: LoggedRecord, *, has_view: bool) -> FoldedReceipt:
    """What a receipt changes; `has_view`: the code still has the view whose level decided the intent."""
    state: str = STATE_AFTER[record.outcome]
    if (record.verb, state) == ("event", "written"):
        state = "settled"  # no level waits for Events
    return FoldedReceipt(
        key=record.key,
        view=record.view,
        parent=str(record.parent),
        parent_uid=record.parent_uid,
        partition=logged.partition,
        round=record.round,
        state=state,
        outcome=record.outcome,
        receipt=canonical(record),
        result_uid=record.target_uid,
        result_version=record.target_version,
        sequence=logged.sequence,
        has_view=has_view,
    )


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


def calls_key(parent_uid: str) -> str:
    """Key of an index of an effect."""
    return canonical(parent_uid).decode()


def _memory_of_call(record: ReceiptNoted, call: CallNoted) -> Memory:
    index, key = f"{record.view.partition('/')[0]}/{record.target.resource}", calls_key(record.parent_uid)
    value = Call[Any, Any](
        request=call.request, result=call.result, name=call.name, idempotency_key=record.key, called_at=record.time
    )
    return Memory(index, key, call_entry(str(record.parent), call.name), Entry(index, key, 0, canonical(value)))
