"""What receipts say of the children that were applied, as entries of an index that no object fills."""

from msgspec import Struct

from levelog.canonical import canonical
from levelog.children import Remembered
from levelog.implicit import MARK, applied_place
from levelog.records import ReceiptNoted
from levelog_store.rows import Entry


class Memory(Struct, frozen=True):
    """What a receipt changes: the entry of one target under its parent's name."""

    index: str
    key: str
    object: str
    entry: Entry | None
    """None: there is nothing to remember any more."""


def memory_of(record: ReceiptNoted) -> Memory | None:
    """The entry that a receipt makes, or ends; None for receipts that say nothing of the kind."""
    index, key = applied_place(record.view, str(record.parent))
    name = f"{MARK}{record.target}"  # no object's name, so that no record of an object touches the entry
    if record.verb == "delete" and record.outcome in ("written", "gone"):
        return Memory(index, key, name, None)
    if record.applied is None:
        return None
    value = Remembered(parent_uid=record.parent_uid, uid=record.target_uid, applied=record.applied)
    return Memory(index, key, name, Entry(index, key, 0, canonical(value)))
