"""The words for entries, decisions and writes, for all who show them."""

from datetime import UTC, datetime
from typing import Final

from levelog.handlers.callnames import (
    NOT_CALLED,
    is_daemon,
    kind_and_name,
    only_notes,
    shown_patches,
    shown_write,
    title_of,
)
from levelog_base.wire.records import ReceiptNoted
from levelog_history.explaining import CausingRecord, Explained, ExplainedWrite
from levelog_history.revisions import Revision
from levelog_store.decide.decisions import Basis, Decision
from levelog_store.look.overview import Tried, daemon_text, error_of

_TEXT: Final = {
    "created": "created",
    "found": "found by a list",
    "changed": "changed",
    "rewritten": "written, no field changed",
    "recreated": "deleted and created again",
    "deleted": "deleted",
    "swept": "deleted unseen: a list no longer had it",
    "unreadable": "a record that is no JSON of an object",
}
_MOST: Final = 12
"""Records that are named in one line; of more, it is said how many there are."""


def happened_text(revision: Revision) -> str:
    """The verb for what a record did to its object."""
    return "is being deleted" if revision.is_doomed else _TEXT[revision.happened]


def writer_text(revision: Revision) -> str:
    """The writer of a revision, to stand behind what happened; empty where the API names none."""
    manager, at = revision.written.manager, revision.written.at
    if revision.is_gone or revision.is_doomed or not manager:
        return ""
    if not revision.is_listed:
        return f" by {manager}"
    return f", last written by {manager}{_moment(at, revision.time) if at else ''}"


def _moment(text: str, recorded: datetime) -> str:
    """A moment, without the day if that is the one on which it was recorded."""
    at = datetime.fromisoformat(text).astimezone(UTC)
    return f" at {at:%H:%M:%S}" if at.date() == recorded.astimezone(UTC).date() else f" at {at:%Y-%m-%d %H:%M:%S}"


def decider_text(explained: Explained) -> str:
    """The maker of a decision, for people: `operator webs, view pods`, or `operator shops, handler provision`."""
    decision = explained.decision
    operator, _, view = decision.view.partition("/")
    titles = (title_of(decision.view, each.intent.target) for each in explained.writes if each.intent.verb == "call")
    return f"operator {operator}, {next((each for each in titles if not each.startswith('effect ')), f'view {view}')}"


def is_first(decision: Decision) -> bool:
    """Tell whether there was no level before a decision, or one of which nothing was known yet."""
    return (decision.basis.status, decision.basis.round) == (Basis().status, 0)


def woken(decision: Decision) -> str:
    """Which records asked for a decision."""
    called = "" if decision.is_called else "; the view was not called"
    sequences = [str(sequence) for sequence in decision.causes.sequences]
    if not sequences:
        why = "woken by no record: its time had come" if decision.basis.is_due else "woken by no record"
        return f"{why}{called}"
    records = ", ".join(sequences[:_MOST])
    more = f" and {len(sequences) - _MOST} more" if len(sequences) > _MOST else ""
    cut = " and others that were not noted" if decision.causes.has_more else ""
    return f"woken by {records}{more}{cut}{called}"


def receipt_text(receipt: ReceiptNoted) -> str:
    """The outcome of a write, by its receipt."""
    error = f": {receipt.error}" if receipt.error else ""
    shown_as = shown_write(receipt.view, receipt.verb, str(receipt.target))
    return f"{receipt.view}: {shown_as} {outcome_text(receipt)}{error}"


def outcome_text(receipt: ReceiptNoted) -> str:
    """The same without saying of what, and without the error."""
    outcome = NOT_CALLED if only_notes(receipt.view, str(receipt.target), receipt.call) else receipt.outcome
    version = f" as version {receipt.target_version}" if receipt.target_version else ""
    return f"{outcome}{shown_patches(receipt)}{version}"


def read_text(view: str, index: str, key: str) -> str:
    """What a view has read: the values of an index under a key, or, without one, the index as a whole."""
    index = index.partition("/")[2] or index
    kind, name = kind_and_name(view, index)
    index = index if kind == "effect" else f"calls of {kind} {name}"
    return f"{index}[{key}]" if key else f"{index} as a whole"


def write_text(write: ExplainedWrite) -> str:
    """A write with what became of it."""
    intent = write.intent
    if write.shown is not None:
        became = f"done, seen in {write.shown.sequence}"
    elif write.receipt is not None and only_notes(intent.view, intent.target, write.receipt.call):
        became = NOT_CALLED
    elif intent.state in ("settled", "satisfied"):
        became = "done" if intent.state == "settled" else "not sent, it was so already"
    elif intent.state == "failed":
        became = f"failed: {error_text(write)}"
    else:
        became = state_text(write)
    return f"{shown_write(intent.view, intent.verb, intent.target)}: {became}{shown_patches(write.receipt)}"


def state_text(write: ExplainedWrite) -> str:
    """The state of a write, with what keeps it there."""
    intent = write.intent
    if is_daemon(intent.view, intent.verb, intent.target) and intent.state in ("pending", "claimed"):
        return daemon_text(intent.decided_at, intent.owner, error_text(write), intent.attempts, intent.next_at)
    tried = ""
    if intent.error and intent.state in ("pending", "claimed"):
        tried = Tried(count=intent.attempts, since=intent.decided_at, next_at=intent.next_at).text
    return ": ".join(filter(None, (intent.state, tried, error_text(write), write.queue.text if write.queue else "")))


def error_text(write: ExplainedWrite) -> str:
    """The error of a write's last attempt."""
    intent = write.intent
    return error_of(intent.view, intent.verb, intent.target, intent.error)


def other_text(cause: CausingRecord) -> str:
    """The words for a record that is no entry of a history."""
    if cause.record is None:
        return "a record that is not in the log any more"
    name = type(cause.record.record).__name__
    resource = getattr(cause.record.record, "resource", "")
    key = getattr(cause.record.record, "key", "")
    words = {
        "SyncStarted": "a list began: ",
        "SyncFinished": "a list is complete: ",
        "HistoryReverted": "history went back, as after a restore of etcd: ",
        "BookmarkNoted": "the watch goes on: ",
        "ContactLost": "nothing is heard of ",
    }
    return f"{words.get(name, f'{name}: ')}{resource or key}"
