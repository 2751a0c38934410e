"""Entries of a history as JSON objects, the same for each command."""

from typing import Any

import msgspec

from levelog.wire.records import ReceiptNoted, TargetSighted
from levelog_history.happenings import Entry
from levelog_history.revisions import Missing, Revision


def plain(entry: Entry, sequence: int) -> dict[str, Any]:
    """The entry of a record, without the body of the object."""
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
