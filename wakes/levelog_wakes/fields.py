"""The fields that differ between two versions of an object, under names that all objects of a resource share."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from levelog_base.wire.projection import path_to

ABSENT: Final = "\0absent"
"""Stands for no value; no field has it."""
CREATED: Final = "the creation"
DELETED: Final = "the deletion"
WRITTEN: Final = "anything but the status"
"""Where the log has no bodies, a write tells no more."""
_OWN: Final = frozenset({"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"})
"""Of metadata: the server's, or told by another field."""
_DEEPEST: Final = 12
_MOST: Final = 40
"""Fields of one write that are told apart."""

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")

FieldChange = tuple[str, Any, Any]
"""Its name, the value before and the value after."""


def changed_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[FieldChange]:
    """The fields that differ; conditions are named by their type, other items of lists together.

    >>> changed_fields({"status": {"ready": 1}}, {"status": {"ready": 2}, "metadata": {"generation": 3}})
    [('status.ready', 1, 2)]
    """
    found: dict[str, FieldChange] = {}
    for change in _differences("", before, after, 0):
        found.setdefault(change[0], change)
        if len(found) >= _MOST:
            break
    return list(found.values())


def is_time(value: Any) -> bool:
    """Tell whether a value is a time; that one becomes another is no condition that somebody waits for."""
    return isinstance(value, str) and _TIME.fullmatch(value) is not None


def _differences(path: str, before: Any, after: Any, depth: int) -> Iterator[FieldChange]:
    if type(before) is type(after) and before == after:
        return
    old, new = _parts(path, before), _parts(path, after)
    if depth < _DEEPEST and old is not None and new is not None and (old or new):
        for part in dict.fromkeys((*old, *new)):
            yield from _differences(part, old.get(part, ABSENT), new.get(part, ABSENT), depth + 1)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for old_item, new_item in zip(before, after, strict=True):
            yield from _differences(f"{path}[]", old_item, new_item, depth + 1)
    else:
        yield path, before, after


def _parts(path: str, value: Any) -> Mapping[str, Any] | None:
    """Of a mapping, or of a list of conditions, by path; an absent field has none, so that new parts are named."""
    if value == ABSENT:
        return {}
    if isinstance(value, dict):
        left_out = _OWN if path == "metadata" else () if path else ("apiVersion", "kind")
        return {path_to(path, key): part for key, part in value.items() if key not in left_out}
    if isinstance(value, list) and all(isinstance(item, dict) and isinstance(item.get("type"), str) for item in value):
        return {f"{path}[{item['type']}]": item for item in value}
    return None


def names_in(value: Any, most: int = 64) -> set[str]:
    """Texts in a value that may be names of other objects."""
    found: set[str] = set()
    left = [value]
    while left and len(found) < most:
        each = left.pop()
        if isinstance(each, str):
            if 0 < len(each) <= 253 and each[0].isalnum() and " " not in each and "/" not in each:
                found.add(each)
        elif isinstance(each, dict):
            left.extend(each.values())
        elif isinstance(each, Sequence):
            left.extend(each)
    return found
