"""Answers as JSON: of each value that is told, the parts that count, in the order of these lists."""

from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from levelog_base.wire.objects import GroupResource, ObjectKey
from levelog_history.explaining import Explained
from levelog_history.pastlevels import LevelsNow
from levelog_history.timeline import AnyEntry, DecisionEntry
from levelog_history.why import KeptLevel
from levelog_store.rows import Scope

_VERDICT: Final = "status reason round desired actual drift"
_DECISION: Final = "view parent parent_uid sequence cause decided_at"
SHOWN: Final = {
    # of `levelog levels`
    "LevelLine": "view parent status reason=told_reason drift round tried evaluated_at writes",
    # of timelines
    "Decision": f"{_DECISION} {_VERDICT} before=basis.status is_due=basis.is_due is_called fingerprint "
    "causes=causes.sequences has_more_causes=causes.has_more",
    "Revision": "sequence time object happened uid version written is_listed differences",
    "Explained": "reads levels=level_statuses before=before.verdict after=decision.verdict writes",
    "ExplainedWrite": "key=intent.key verb=intent.verb target=intent.target state=intent.state "
    "attempts=intent.attempts next_at=intent.next_at error=intent.error queue receipt receipt_sequence "
    "shown_by=shown.sequence",
    # of decisions that are made again
    "Verdict": _VERDICT,
    "Asked": "key verb target body",
    "Report": "is_same compared=names views=comparison.tallies obstacles=comparison.obstacles records seconds "
    "first=comparison.first calls",
    "Divergence": " ".join(f"{name}=past.{name}" for name in (*_DECISION.split(), "parent_sequence"))
    + " parent_body=parent.body parts reads before after",
    "Conclusion": " ".join(f"{name}=verdict.{name}" for name in _VERDICT.split()) + " keys intents",
    "CallComparison": "functions=tallies refusals obstacles first",
    "CallDifference": "function=name kind parent=past.parent decided_at=past.decided_at cause=past.cause retry request "
    "before after",
    "Came": "result error",
    "Planned": "is_same at views=counts levels dropped waiting unlisted later",
    "PlannedLevel": "view=change.view parent=change.parent is_due is_later deletions before=change.before "
    "after=change.after writes",
}
"""By the name of a class, which its subclasses share: attributes, `name=path` where they lie deeper. Of other structs
all fields count. Names, since classes of rooms that take long to load are among them."""
_PARTS: Final = {
    cls: [(name, path or name) for name, _, path in (part.partition("=") for part in parts.split())]
    for cls, parts in SHOWN.items()
}
TYPES: Final = {
    "Revision": "revision",
    "Missing": "missing",
    "ReceiptNoted": "receipt",
    "TargetObserved": "observation",
    "Ignored": "ignored",
}
"""The `type` of what stands on a timeline."""


def plain(value: object) -> Any:
    """What JSON has of a value: bytes hold JSON themselves, and names of objects are text."""
    if isinstance(value, bytes):
        return msgspec.Raw(value) if value else None
    if isinstance(value, ObjectKey | GroupResource):
        return str(value)
    if isinstance(value, Mapping):
        named: Mapping[Any, Any] = value  # the key of an index is as text has it
        return {"{}[{}]".format(*key) if isinstance(key, tuple) else key: plain(each) for key, each in named.items()}
    if isinstance(value, Collection) and not isinstance(value, str):
        several: Collection[Any] = value
        return [plain(each) for each in several]
    if not (shown := _shown(type(value))):
        return value
    name = type(value).__name__
    typed = {"type": TYPES[name]} if name in TYPES else {}
    return typed | {name: plain(each) for name, path in shown if (each := _part(value, path)) is not UNSET}


def _shown(cls: type) -> list[tuple[str, str]]:
    """The names and paths that are shown of a class; none: it is shown as it is."""
    for each in cls.__mro__:
        if each.__name__ in _PARTS:
            return _PARTS[each.__name__]
    return [(name, name) for name in cls.__struct_fields__] if issubclass(cls, Struct) else []


def _part(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = None if value is None else attrgetter(name)(value)
    return value


def entry_plain(entry: AnyEntry, sequence: int) -> dict[str, Any]:
    """An entry of a timeline, without the body of the object."""
    if isinstance(entry, DecisionEntry):
        more = {"after": entry.after, "application": entry.application, "writes": plain(entry.writes)}
        return {"type": "decision", **plain(entry.decision), **more}
    return {**plain(entry), "sequence": sequence}


def explained_plain(level: KeptLevel, explained: Explained) -> dict[str, Any]:
    """A decision that is explained."""
    causes = [
        {"sequence": cause.sequence, "entries": [entry_plain(each, cause.sequence) for each in cause.entries]}
        for cause in explained.causes
    ]
    of = {"type": "decision", "application": level.scope.application}
    return {**of, **plain(explained.decision), **plain(explained), "causes": causes}


def levels_plain(levels: LevelsNow) -> list[dict[str, Any]]:
    """Levels as they are, as far as was known at the last contact."""
    return [
        {**level_plain(scope, line), "last_contact": levels.contacts.get(scope.number, ("", None))[1]}
        for scope, line in levels.lines
    ]


def level_plain(scope: Scope, level: Struct) -> dict[str, Any]:
    """A level as it is or was, with its application."""
    return {"cluster": scope.cluster, "application": scope.application, **plain(level)}
