"""Strategic merge patch: a merge patch that merges lists by the key that their schema names.

A patch may also say how: `$patch` (replace, delete), `$retainKeys`, `$deleteFromPrimitiveList/LIST` and
`$setElementOrder/LIST`, as kubectl sends them.

Limits: a patch whose directives contradict each other may be taken, or refused in other words than the server's.
"""

from collections.abc import Sequence
from typing import Any, Final

from levelog_sandbox.api import refusals
from levelog_sandbox.schemas.shapes import ANY, Schema

Json = dict[str, Any]

DIRECTIVE: Final = "$patch"
RETAINED: Final = "$retainKeys"
DELETED: Final = "$deleteFromPrimitiveList/"
ORDER: Final = "$setElementOrder/"


def strategic_merge_patch(target: Json, patch: Any, schema: Schema) -> Json:
    """The target after a patch; neither is changed.

    Raises `StatusError` 400 for a patch that is no object, 500 for one that does not fit the kind's lists.
    """
    if not isinstance(patch, dict):
        raise refusals.bad_request("json: cannot unmarshal it into Go value of type map[string]interface {}")
    try:
        return _merged_map(target, patch, schema)
    except (TypeError, AttributeError) as error:
        raise _unmergeable(f"a directive has a value of a wrong type: {error}") from error


def _merged_map(target: Json, patch: Json, schema: Schema) -> Json:
    if DIRECTIVE in patch:
        if patch[DIRECTIVE] not in ("replace", "delete"):
            raise _unmergeable(f"unknown patch type: {patch[DIRECTIVE]} in map: {patch}")
        return {k: v for k, v in patch.items() if k != DIRECTIVE} if patch[DIRECTIVE] == "replace" else {}
    kept = patch.get(RETAINED)
    merged = dict(target) if kept is None else {key: value for key, value in target.items() if key in kept}
    for key, value in patch.items():
        live = merged.get(key)
        if key == RETAINED or key.startswith(ORDER):
            continue
        if key.startswith(DELETED):
            field = key.removeprefix(DELETED)
            merged[field] = [item for item in merged.get(field) or () if item not in value]
        elif isinstance(live, dict) and isinstance(value, dict):
            merged[key] = _merged_map(live, value, schema.child(key)[0])
        elif isinstance(live, list) and isinstance(value, list) and schema.child(key)[0].merges:
            merged[key] = _merged_list(live, value, schema.child(key)[0])
        elif (plain := _undirected(value)) is None:
            merged.pop(key, None)
        else:
            merged[key] = plain
    for key, order in patch.items():
        if key.startswith(ORDER) and isinstance(items := merged.get(field := key.removeprefix(ORDER)), list):
            merged[field] = _ordered(items, order, target.get(field) or (), schema.child(field)[0].merge_key)
    return merged


def _undirected(value: Any) -> Any:
    """What is set anew, less nulls and the maps that hold a `$patch`; None when it is one itself."""
    if isinstance(value, dict):
        kept = {key: item for key in value if (item := _undirected(value[key])) is not None}
        return None if DIRECTIVE in value else kept
    return [kept for item in value if (kept := _undirected(item)) is not None] if isinstance(value, list) else value


def _merged_list(target: list[Any], patch: list[Any], shape: Schema) -> list[Any]:
    key, merged, plain = shape.merge_key, list(target), list[Any]()
    for item in patch:
        match item.get(DIRECTIVE) if isinstance(item, dict) else None:
            case None:
                plain.append(item)
            case "delete":
                merged = [each for each in merged if _key_of(each, key) != _key_of(item, key)]
            case "replace":
                return [each for each in patch if DIRECTIVE not in each]
            case directive:
                raise _unmergeable(f"unknown patch type: {directive} in map: {item}")
    for item in plain:
        at = _position(merged, item, key)
        if at < 0:
            merged.append(_undirected(item))
        elif key:
            merged[at] = _merged_map(merged[at], item, shape.element or ANY)
    return _ordered(merged, plain, target, key)


def _ordered(items: list[Any], wanted: Sequence[Any], live: Sequence[Any], key: str) -> list[Any]:
    """The items that are wanted in that order, and the rest in that of before, each as far forward as it was."""

    def place(order: Sequence[Any], item: Any) -> int:
        at = _position(order, item, key)
        return at if at >= 0 else len(order)

    mine = sorted((i for i in items if _position(wanted, i, key) >= 0), key=lambda item: place(wanted, item))
    others = sorted((i for i in items if _position(wanted, i, key) < 0), key=lambda item: place(live, item))
    merged: list[Any] = []
    while mine and others:
        merged.append(others.pop(0) if place(live, others[0]) < _position(live, mine[0], key) else mine.pop(0))
    return merged + mine + others


def _position(items: Sequence[Any], item: Any, key: str) -> int:
    wanted = _key_of(item, key)
    return next((at for at, each in enumerate(items) if _key_of(each, key) == wanted), -1)


def _key_of(item: Any, key: str) -> Any:
    """The identity of an item in a list: the value of its merge key, or itself."""
    if not key:
        return item
    if not isinstance(item, dict) or key not in item:
        raise _unmergeable(f"map: {item} does not contain declared merge key: {key}")
    return item[key]


def _unmergeable(why: str) -> refusals.StatusError:
    """The server answers 500 to patches that do not fit."""
    return refusals.StatusError(500, "", why)
