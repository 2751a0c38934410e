"""Merging an applied configuration into the live object: maps by key, keyed lists and sets by item, the rest whole.

Rules: sigs.k8s.io/structured-merge-diff v6.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from levelog_sandbox.paths import ABSENT, DuplicateItemError, element_of, is_leaf, item_schema
from levelog_sandbox.schema import Schema

Json = dict[str, Any]


def merge(live: Json, applied: Json, schema: Schema) -> Json:
    """The live object with everything that the applied configuration says; neither argument is changed."""
    merged = _merge(live, applied, schema)
    return merged if isinstance(merged, dict) else {}


def _merge(live: Any, applied: Any, schema: Schema) -> Any:
    if applied is ABSENT:
        return live
    if live is ABSENT or type(live) is not type(applied) or is_leaf(applied, schema):
        return applied
    if isinstance(applied, dict):
        merged = dict(live)
        for key, value in applied.items():
            merged[key] = _merge(live.get(key, ABSENT), value, schema.child(key)[0])
        return merged
    return _merge_items(live, applied, schema)


def _merge_items(live: list[Any], applied: list[Any], schema: Schema) -> list[Any]:
    theirs = [(element_of(item, schema), item) for item in live]
    mine: dict[str, Any] = {}
    for item in applied:
        element = element_of(item, schema)
        if element in mine:
            raise DuplicateItemError(f"duplicate entries for key [{element[2:]}]")
        mine[element] = item
    before = dict(theirs)
    order = interleaved([element for element, _ in theirs], list(mine))
    child = item_schema(schema)
    return [_merge(before.get(element, ABSENT), mine.get(element, ABSENT), child) for element in order]


def interleaved(live: Sequence[str], applied: Sequence[str]) -> list[str]:
    """The order of a merged list.

    Live items alone go out until the next shared one, in applied order, is met; a shared one met out of turn waits.
    """
    ours = set(applied)
    turns = deque(element for element in applied if element in set(live))
    order: list[str] = []
    out: set[str] = set()

    def put(element: str) -> None:
        order.append(element)
        out.add(element)
        if turns and turns[0] == element:
            turns.popleft()

    left, right = deque(live), deque(applied)
    while left or right:
        if left and right:
            if left[0] == right[0]:
                put(left.popleft())
                right.popleft()
                continue
            if left[0] in ours and turns and turns[0] != left[0]:
                left.popleft()
                continue
        if left and left[0] not in ours:
            put(left.popleft())
            continue
        if left and left[0] in out:
            left.popleft()
        if right:
            put(right.popleft())
    return order
