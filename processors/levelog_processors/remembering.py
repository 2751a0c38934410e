"""What receipts say of children that were applied and of effects that took place, as entries that no object gives."""

from typing import Any

from msgspec import Struct

from levelog.canonical import canonical
from levelog.children import Remembered
from levelog.effects import Call
from levelog.implicit import MARK, applied_place, call_entry
from levelog.records import CallNoted, ReceiptNoted
from levelog_store.rows import Entry


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
