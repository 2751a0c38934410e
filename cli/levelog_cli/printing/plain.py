"""Answers as JSON objects, the same for each command."""

from typing import Any

import msgspec

from levelog_base.wire.records import ReceiptNoted, TargetObserved
from levelog_history.explaining import Explained
from levelog_history.ignoring import Ignored
from levelog_history.levels import LevelsNow
from levelog_history.revisions import Missing, Revision
from levelog_history.timeline import AnyEntry, DecisionEntry
from levelog_history.why import KeptLevel
from levelog_store.decide.decisions import Decision
from levelog_store.rows import Scope


def blamed_plain(path: str, value: Any, revision: Revision) -> dict[str, Any]:
    """A field, and the revision that set it."""
    plain = entry_plain(revision, revision.sequence)
    return {
        "field": path,
        "value": value,
        **{name: plain[name] for name in ("sequence", "time", "happened", "written")},
    }


def entry_plain(entry: AnyEntry, sequence: int) -> dict[str, Any]:
    """An entry of a timeline, without the body of the object."""
    if isinstance(entry, DecisionEntry):
        return _decision_entry(entry)
    plain: dict[str, Any] = msgspec.to_builtins(entry)
    match entry:
        case Revision():
            del plain["body"]
            return {"type": "revision", **plain}
        case Missing():
            return {"type": "missing", **plain}
        case ReceiptNoted() | TargetObserved():
            return {
                "type": "receipt" if isinstance(entry, ReceiptNoted) else "observation",
                "sequence": sequence,
                **plain,
                "parent": str(entry.parent),
                "target": str(entry.target),
            }


def _of(row: object, *names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _sides(decision: Decision) -> dict[str, Any]:
    return {name: msgspec.Raw(getattr(decision, name) or b"null") for name in ("desired", "actual")}


def _decision_entry(entry: DecisionEntry) -> dict[str, Any]:
    decision = entry.decision
    return {
        "type": "decision",
        "after": entry.after,
        "sequence": decision.sequence,
        "time": decision.decided_at,
        "application": entry.application,
        **_of(decision, "view", "parent", "parent_uid"),
        "before": decision.basis.status,
        **_of(decision, "status", "reason", "round"),
        "drift": decision.differing,
        "causes": decision.causes.sequences,
        "has_more_causes": decision.causes.has_more,
        "is_due": decision.basis.is_due,
        **_of(decision, "is_called", "fingerprint"),
        "writes": [_of(each, "key", "verb", "target") for each in entry.writes],
    }


def explained_plain(level: KeptLevel, explained: Explained) -> dict[str, Any]:
    """A decision that is explained."""
    decision, before = explained.decision, explained.before

    def side(each: Decision) -> dict[str, Any]:
        return {**_of(each, "status", "reason"), **_sides(each), "drift": each.differing}

    return {
        "type": "decision",
        "application": level.scope.application,
        **_of(decision, "view", "parent", "parent_uid", "decided_at", "sequence", "round", "is_called"),
        "is_due": decision.basis.is_due,
        "fingerprint": decision.fingerprint,
        "causes": [
            {"sequence": each.sequence, "entries": [entry_plain(entry, each.sequence) for entry in each.entries]}
            for each in explained.causes
        ],
        "has_more_causes": decision.causes.has_more,
        "reads": explained.reads,
        "levels": explained.level_statuses,
        "before": side(before) if before is not None else None,
        "after": side(decision),
        "writes": [
            {
                **_of(each.intent, "key", "verb", "target", "state", "attempts", "next_at", "error"),
                "queue": each.queue,
                "receipt": {"sequence": each.receipt_sequence, **_of(each.receipt, "outcome", "target_version", "time")}
                if each.receipt
                else None,
                "shown_by": each.shown.sequence if each.shown else None,
            }
            for each in explained.writes
        ],
    }


def ignored_plain(level: KeptLevel, ignored: Ignored) -> dict[str, Any]:
    """A change that led to no decision."""
    return {"type": "ignored", "view": level.view, "parent": level.parent, **msgspec.to_builtins(ignored)}


def levels_plain(levels: LevelsNow) -> list[dict[str, Any]]:
    """Levels as they are, as far as was known at the last contact."""
    return [
        {
            **_of(scope, "cluster", "application"),
            **_of(line, "view", "parent", "status"),
            "reason": line.told_reason,
            "drift": msgspec.json.decode(line.drift) if line.drift else None,
            **_of(line, "round", "tried", "evaluated_at"),
            "last_contact": levels.contacts[scope.number][1] if scope.number in levels.contacts else None,
            "writes": line.writes,
        }
        for scope, line in levels.lines
    ]


def past_level_plain(scope: Scope, decision: Decision) -> dict[str, Any]:
    """A level as it was."""
    return {
        **_of(scope, "cluster", "application"),
        **_of(decision, "view", "parent", "status", "reason"),
        **_sides(decision),
        "drift": decision.differing or None,
        **_of(decision, "round", "sequence", "decided_at"),
    }
