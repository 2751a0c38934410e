"""The condition for which a program wakes: fields that changed before the wakes that wrote, and before few others."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from levelog_wakes.bursts import CauseSet, Preceding, Sum, Traffic
from levelog_wakes.versions import RELATIONS, Cause

_LEAST_WAKES: Final = 3
"""That wrote; of fewer nothing is said."""
_MOST_FIELDS: Final = 3
_LEAST_PRECISION: Final = 0.5
_LEAST_GAIN: Final = 0.1
"""Of the wakes that wrote, which another field has to add."""
_EXPLAINED: Final = 0.6
"""Of the wakes that wrote; where fields explain fewer, something else wakes it as well."""
_LIFT: Final = 1.5
"""By so much more often a wake has to write once the field has changed."""
_FEW_IDLE: Final = 0.1
"""Where so few wakes did not write, those that the fields did not cause are not in the log: nothing was asked."""
_TELLING: Final = ("ready", "phase", "available", "conditions", "replicas")
_SELDOM: Final = ("time", "generation", "timestamp", "hash", "probe", "heartbeat")

Kind = Literal["field", "own write", "date", "outside", "nothing", "few"]


class FieldCause(Struct, frozen=True, kw_only=True):
    """A field whose change comes before wakes that write."""

    relation: str
    resource: str
    field: str
    hits: int
    """Wakes that wrote after it had changed."""
    others: int
    """Wakes that did not write after it had changed, or, where each wake writes, its changes without a wake."""
    with_it: int = 0
    """Other fields that have the same numbers."""

    @property
    def cause(self) -> Cause:
        """As the wakes name it."""
        return self.relation, self.resource, self.field  # type: ignore[return-value]


class Explanation(Struct, frozen=True, kw_only=True):
    """What the wakes of a client about a resource wait for."""

    kind: Kind
    fields: list[FieldCause] = []
    wrote: int = 0
    explained: int = 0
    """Wakes that wrote, after one of the fields had changed."""
    needless: int = 0
    """Wakes that did not write, after one of the fields had changed."""
    precision: float = 0.0
    recall: float = 0.0
    needed: Sum = msgspec.field(default_factory=Sum)
    """The wakes that such a condition would have left."""


def explain(traffic: Traffic) -> Explanation:
    """Find the condition."""
    total = traffic.total
    if not total.wrote:
        return Explanation(kind="nothing" if total.idle >= _LEAST_WAKES else "few")
    if total.wrote < _LEAST_WAKES:
        return Explanation(kind="few", wrote=total.wrote)
    is_always = total.idle <= _FEW_IDLE * (total.wrote + total.idle)
    if is_always:
        sets = _told(traffic.sets, is_prompt=True)
        seen = {cause: Preceding(hits, 0, traffic.fields[cause].episodes) for cause, hits in _hits(sets).items()}
    else:
        sets, seen = _told(traffic.sets, is_prompt=False), traffic.fields
    chosen: list[FieldCause] = []
    left = sets
    while len(chosen) < _MOST_FIELDS:
        found = _best(_hits(left), seen, total, least=max(_LEAST_WAKES, _LEAST_GAIN * total.wrote), is_always=is_always)
        if found is None:
            break
        chosen.append(found)
        left = [(causes, each) for causes, each in left if found.cause not in causes]
    covering = {each.cause for each in chosen}
    needed = _sum(each for causes, each in sets if causes & covering)
    recall = needed.wrote / total.wrote
    if chosen and recall >= _EXPLAINED:
        if is_always:
            hits = sum(each.hits for each in chosen)
            precision = hits / max(hits + sum(each.others for each in chosen), 1)
        else:
            precision = needed.wrote / max(needed.wrote + needed.idle, 1)
        return Explanation(
            kind="field",
            fields=chosen,
            wrote=total.wrote,
            explained=needed.wrote,
            needless=needed.idle,
            precision=precision,
            recall=recall,
            needed=needed,
        )
    if traffic.echoes >= 0.5 * total.wrote:
        return Explanation(kind="own write", wrote=total.wrote, fields=chosen, recall=recall)
    is_regular = bool(traffic.rhythms) and is_always
    return Explanation(kind="date" if is_regular else "outside", wrote=total.wrote, fields=chosen, recall=recall)


def _told(sets: dict[CauseSet, Sum], *, is_prompt: bool) -> list[tuple[frozenset[Cause], Sum]]:
    return [
        (frozenset(cause for cause, was_prompt in causes if was_prompt or not is_prompt), each)
        for causes, each in sets.items()
    ]


def _hits(sets: Sequence[tuple[frozenset[Cause], Sum]]) -> dict[Cause, int]:
    hits: dict[Cause, int] = {}
    for causes, each in sets:
        for cause in causes:
            hits[cause] = hits.get(cause, 0) + each.wrote
    return hits


def _best(
    hits: dict[Cause, int], seen: dict[Cause, Preceding], total: Sum, *, least: float, is_always: bool
) -> FieldCause | None:
    """The field that explains most of what is left, and little else; the most telling of those that change together."""
    scored: list[tuple[float, Cause, FieldCause]] = []
    base = total.wrote / (total.wrote + total.idle)
    for cause, number in hits.items():
        if number < least:
            continue
        each = seen[cause]
        others = max(each.episodes - each.wrote, 0) if is_always else each.idle
        precision = each.wrote / (each.wrote + others)
        if precision < (_LEAST_PRECISION if is_always else max(_LEAST_PRECISION, min(_LIFT * base, 0.95))):
            continue
        recall = number / total.wrote
        relation, resource, field = cause
        found = FieldCause(relation=relation, resource=resource, field=field, hits=each.wrote, others=others)
        scored.append((2 * precision * recall / (precision + recall), cause, found))
    if not scored:
        return None
    best = max(score for score, _, _ in scored)
    alike = [(_rank(cause), found) for score, cause, found in scored if score >= best - 0.03]
    _, first = min(alike, key=lambda each: each[0])
    return FieldCause(
        relation=first.relation,
        resource=first.resource,
        field=first.field,
        hits=first.hits,
        others=first.others,
        with_it=len(alike) - 1,
    )


def _rank(cause: Cause) -> tuple[int, int, int, str]:
    """Of fields that change together: the closest object, then names that say what somebody waits for."""
    relation, resource, field = cause
    lower = field.lower()
    is_seldom = any(lower.endswith(each) for each in _SELDOM) or lower.startswith("metadata")
    is_telling = any(each in lower for each in _TELLING) and not lower.endswith(("message", "reason"))
    return RELATIONS.index(relation), is_seldom, not is_telling, f"{len(field):04} {resource} {field}"


def _sum(sums: Iterable[Sum]) -> Sum:
    total = Sum()
    for each in sums:
        total.wrote += each.wrote
        total.idle += each.idle
        total.calls += each.calls
        total.size += each.size
        total.cpu_seconds += each.cpu_seconds
    return total
