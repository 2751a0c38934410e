"""Receipts as the fold writes them down."""

from levelog.canonical import canonical
from levelog.records import LoggedRecord, ReceiptNoted
from levelog_store.changes import FoldedReceipt

_OUTCOME_STATE = {
    "written": "written",
    "unchanged": "written",
    "gone": "written",
    "failed": "failed",
    "conflict": "written",
}


def folded_receipt(record: ReceiptNoted, logged: LoggedRecord, *, has_view: bool) -> FoldedReceipt:
    """What a receipt changes; `has_view`: the code still has the view whose level decided the intent."""
    state = _OUTCOME_STATE[record.outcome]
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
        receipt=canonical(record),
        result_uid=record.target_uid,
        result_version=record.target_version,
        sequence=logged.sequence,
        has_view=has_view,
    )
