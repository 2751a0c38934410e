"""The condition for which a program wakes: fields that changed before the wakes that wrote, and before few others."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from levelog_wakes.bursts import Sum, Traffic
from levelog_wakes.versions import RELATIONS

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
_ALIKE: Final = 0.03
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


class Explanation(Struct, frozen=True, kw_only=True):
    """The conditions that the wakes of a client about a resource wait for."""

    kind: Kind
    fields: list[FieldCause] = []
    precision: float = 0.0
    recall: float = 0.0
    needed: Sum = msgspec.field(default_factory=Sum)
    """The wakes that such a condition would have left."""


def explain(traffic: Traffic, total: Sum) -> Explanation:
    """Find the condition; `total` is that of the traffic."""
    if total.wrote < _LEAST_WAKES:
        return Explanation(kind="nothing" if not total.wrote and total.idle >= _LEAST_WAKES else "few")
    is_always = total.idle <= _FEW_IDLE * total.wakes
    sets = [(just_before if is_always else before, each) for (before, just_before), each in traffic.sets.items()]
    candidates = _candidates(traffic, sets, total, is_always=is_always)
    chosen: list[FieldCause] = []
    needed, left = Sum(), sets
    while len(chosen) < _MOST_FIELDS and (found := _best(candidates, _hits(left), total)):
        bit, cause = found
        chosen.append(cause)
        for bits, each in left:
            if bits & bit:
                needed.add(each)
        left = [(bits, each) for bits, each in left if not bits & bit]
    recall = needed.wrote / total.wrote
    if chosen and recall >= _EXPLAINED:
        hits, others = needed.wrote, needed.idle
        if is_always:
            hits, others = sum(each.hits for each in chosen), sum(each.others for each in chosen)
        return Explanation(
            kind="field", fields=chosen, precision=hits / max(hits + others, 1), recall=recall, needed=needed
        )
    kind: Kind = "date" if traffic.rhythms and is_always else "outside"
    if traffic.echoes >= 0.5 * total.wrote:
        kind = "own write"
    return Explanation(kind=kind, fields=chosen, recall=recall)


def _candidates(
    traffic: Traffic, sets: Sequence[tuple[int, Sum]], total: Sum, *, is_always: bool
) -> dict[int, FieldCause]:
    """The fields, by bit, after whose changes most wakes write."""
    hits, others = _hits(sets), Counter[int]()
    for (before, _), each in traffic.sets.items():
        for bit in _bits(before):
            others[bit] += each.idle + (each.wrote if is_always else 0)
    least = _LEAST_PRECISION
    if not is_always:
        least = max(least, min(_LIFT * total.wrote / total.wakes, 0.95))
    found: dict[int, FieldCause] = {}
    for cause, bit in traffic.bits.items():
        number = max(others[bit] + traffic.more[cause] - hits[bit], 0) if is_always else others[bit]
        if hits[bit] and hits[bit] >= least * (hits[bit] + number):
            relation, resource, field = cause
            found[bit] = FieldCause(relation=relation, resource=resource, field=field, hits=hits[bit], others=number)
    return found


def _hits(sets: Sequence[tuple[int, Sum]]) -> Counter[int]:
    """Wakes that wrote, by the bits of the fields that had changed before them."""
    hits = Counter[int]()
    for bits, each in sets:
        for bit in _bits(bits) if each.wrote else ():
            hits[bit] += each.wrote
    return hits


def _bits(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest
        bits ^= lowest


def _best(candidates: dict[int, FieldCause], hits: Counter[int], total: Sum) -> tuple[int, FieldCause] | None:
    """The field that explains most of what is left, and little else; the most telling of those that change together."""
    least = max(_LEAST_WAKES, _LEAST_GAIN * total.wrote)
    scores: dict[int, float] = {}
    for bit, found in candidates.items():
        if hits[bit] >= least:
            precision, recall = found.hits / (found.hits + found.others), hits[bit] / total.wrote
            scores[bit] = 2 * precision * recall / (precision + recall)
    if not scores:
        return None
    alike = [bit for bit, score in scores.items() if score >= max(scores.values()) - _ALIKE]
    first = min(alike, key=lambda bit: _rank(candidates[bit]))
    return first, msgspec.structs.replace(candidates[first], with_it=len(alike) - 1)


def _rank(cause: FieldCause) -> tuple[int, bool, bool, int, str, str]:
    """Of fields that change together: the closest object, then names that say what somebody waits for."""
    lower = cause.field.lower()
    is_seldom = lower.endswith(_SELDOM) or lower.startswith("metadata")
    is_telling = any(each in lower for each in _TELLING) and not lower.endswith(("message", "reason"))
    relation = [*map(str, RELATIONS)].index(cause.relation)
    return relation, is_seldom, not is_telling, len(cause.field), cause.resource, cause.field
