"""Strategic merge patch: a merge patch that merges lists by the key that their schema names.

A patch may also say how: `$patch` (replace, delete), `$retainKeys`, `$deleteFromPrimitiveList/LIST` and
`$setElementOrder/LIST`. Origin of what each does, and of the codes and words of its refusals: what kube-apiserver
answers to the same patch; the contract suite compares both.

Limits: nulls among the items of a list are dropped or refused.
"""

from collections.abc import Sequence
from typing import Any, Final

from levelog_sandbox.api import refusals
from levelog_sandbox.schemas.shapes import ANY, Schema

Json = dict[str, Any]

DIRECTIVE: Final = "$patch"
RETAINED: Final = "$retainKeys"
DELETED: Final = "$deleteFromPrimitiveList"
ORDER: Final = "$setElementOrder"


def strategic_merge_patch(target: Json, patch: Any, schema: Schema) -> Json:
    """The target after a patch; neither is changed.

    Raises `StatusError` 400 and 422 for a patch of a wrong form, 500 for one that does not fit the kind's lists.
    """
    if patch is None:
        return target
    if not isinstance(patch, dict):
        actual = {"list": "array", "str": "string", "bool": "bool"}.get(type(patch).__name__, "number")
        raise refusals.bad_request(f"json: cannot unmarshal {actual} into Go value of type map[string]interface {{}}")
    return _merged_map(target, patch, schema)


def _merged_map(target: Json, patch: Json, schema: Schema) -> Json:
    if DIRECTIVE in patch:
        return _directed_map(patch)
    merged, rest = dict(target), dict(patch)
    if RETAINED in rest:
        merged = _retained(merged, rest.pop(RETAINED), rest)
    for key in [key for key in rest if key.startswith(ORDER)]:
        _merge_ordered(merged, rest, key, schema)
    for key, value in rest.items():
        is_deletion = key.startswith(DELETED)
        field = _named(key, DELETED, "primitive list") if is_deletion else key
        live = merged.get(field)
        if value is None:
            merged.pop(field, None)
        elif isinstance(live, dict) and isinstance(value, dict):
            merged[field] = _merged_map(live, value, _declared(schema, field))
        elif isinstance(live, list) and isinstance(value, list):
            merged[field] = _merged_list(live, value, _list_declared(schema, field), is_deletion=is_deletion)
        elif not is_deletion or (live is not None and type(live) is type(value)):
            _set(merged, field, value)
    return merged


def _set(merged: Json, field: str, value: Any) -> None:
    """Take a value as it is, less nulls and what holds a directive."""
    kept = _undirected(_without_nulls(value))
    if kept is None:
        merged.pop(field, None)
    else:
        merged[field] = kept


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _undirected(value: Any) -> Any:
    """The value without the maps that hold a `$patch`; None when it is one itself."""
    if isinstance(value, dict):
        if DIRECTIVE in value:
            return None
        kept = {key: _undirected(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item is not None}
    if isinstance(value, list):
        return [kept for item in value if (kept := _undirected(item)) is not None]
    return value


def _directed_map(patch: Json) -> Json:
    directive = patch[DIRECTIVE]
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != DIRECTIVE}
    if directive == "delete":
        return {}
    raise _unmergeable(f"unknown patch type: {directive} in map: {patch}")


def _retained(target: Json, kept: Any, patch: Json) -> Json:
    """The target with these keys alone; the patch may set no others."""
    is_list = isinstance(kept, list)
    said = [k for k, v in patch.items() if v is not None and not k.startswith((DELETED, ORDER))]
    if not is_list or any(key not in kept for key in said):
        raise refusals.bad_request("invalid patch format of retainKeys")
    return {key: value for key, value in target.items() if key in kept}


def _merge_ordered(merged: Json, patch: Json, key: str, schema: Schema) -> None:
    """Carry out `$setElementOrder/LIST` and the patch of that list; takes both out of the patch."""
    wanted = patch.pop(key)
    if not isinstance(wanted, list):
        raise _unmergeable(f"expected a []interface {{}}, but received a {type(wanted).__name__}")
    field = _named(key, ORDER, "setElementOrder list")
    live, said = merged.get(field), patch.get(field)
    for given in [each[field] for each in (merged, patch) if field in each]:
        if not isinstance(given, list):
            raise _unmergeable(f"expected a []interface {{}}, but received a {type(given).__name__}")
    shape = _list_declared(schema, field)
    _check_order(said or [], wanted, shape.merge_key)
    if live is None and said is None:
        return
    if said is None:
        items = live
    elif live is None:
        items = _undirected(said)
    else:
        items = _merged_list(live, said, shape, is_deletion=False)
    if _holds_maps(live or [], said or []) is not bool(shape.merge_key):
        raise _unmergeable(f"the items of {field} have no order: its merge key is {shape.merge_key!r}")
    merged[field] = _ordered(items or [], wanted, _places(live or [], said or [], shape.merge_key), shape.merge_key)
    patch.pop(field, None)


def _places(live: list[Any], said: list[Any], key: str) -> list[Any]:
    """The order of a list on the server, where items that a patch adds take the places of those that it deletes."""
    gone = [item[key] for item in said if key and item.get(DIRECTIVE) == "delete"]
    if not gone:
        return live
    kept = [item for item in live if not any(_is_same(item.get(key), each) for each in gone)]
    is_replaced = any(item.get(DIRECTIVE) == "replace" for item in said)
    added = [item for item in said if DIRECTIVE not in item and _position(kept, item, key) < 0 and not is_replaced]
    return [*kept, *added][: len(live)]


def _check_order(said: list[Any], wanted: list[Any], key: str) -> None:
    """The items of a patch must be in its `$setElementOrder`, in the same order."""
    if not said or not wanted:
        return
    rest = [item for item in said if not (key and isinstance(item, dict) and item.get(DIRECTIVE) == "delete")]
    for other in wanted:
        while rest and isinstance(rest[0], dict) and DIRECTIVE in rest[0]:
            rest.pop(0)
        if rest and _is_same(_key_of(rest[0], key), _key_of(other, key)):
            rest.pop(0)
    if rest:
        raise _unmergeable(f"The order in patch list:\n{said}\n doesn't match {ORDER} list:\n{wanted}\n")


def _merged_list(target: list[Any], patch: list[Any], shape: Schema, *, is_deletion: bool) -> list[Any]:
    if not (shape.merges or is_deletion):
        return patch
    if not target and not patch:
        return target
    key = shape.merge_key
    if _holds_maps(target, patch):
        if not key:
            raise _unmergeable("cannot merge lists without merge key for struct")
        target, patch = _directed_items(target, patch, key)
        merged = _merged_items(target, patch, shape.element or ANY, key)
    elif is_deletion:
        return [item for item in target if _position(patch, item) < 0]
    elif key:
        raise _unmergeable("expected a map[string]interface {}, but received a string")
    else:
        merged = []
        for item in (*target, *patch):
            if _position(merged, item) < 0:
                merged.append(item)
    return _ordered(merged, patch, target, key)


def _directed_items(target: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Target and patch after the items that are directives."""
    plain = [item for item in patch if DIRECTIVE not in item]
    is_replaced = False
    for item in patch:
        match item.get(DIRECTIVE):
            case "delete":
                gone = _key_of(item, key)
                target = [each for each in target if not _is_same(each.get(key), gone)]
            case "replace":
                is_replaced = True
            case "merge":
                raise _unmergeable("merging lists cannot yet be specified in the patch")
            case directive if DIRECTIVE in item:
                raise _unmergeable(f"unknown patch type: {directive} in map: {item}")
            case _:
                pass
    return (plain, []) if is_replaced else (target, plain)


def _merged_items(target: list[Any], patch: list[Any], element: Schema, key: str) -> list[Any]:
    merged = list(target)
    for item in patch:
        _key_of(item, key)
        at = _position(merged, item, key)
        if at < 0:
            merged.append(item)
        else:
            merged[at] = _merged_map(merged[at], item, element)
    return merged


def _ordered(items: list[Any], wanted: list[Any], live: list[Any], key: str) -> list[Any]:
    """The items of the patch in its order, and the rest in that of before, each as far forward as it was."""
    for item in (*items, *wanted):
        _key_of(item, key)
    mine = _sorted([item for item in items if _position(wanted, item, key) >= 0], wanted, key)
    others = _sorted([item for item in items if _position(wanted, item, key) < 0], live, key)
    merged: list[Any] = []
    while mine and others:
        first, second = _position(live, others[0], key), _position(live, mine[0], key)
        merged.append(others.pop(0) if 0 <= first < second else mine.pop(0))
    return merged + mine + others


def _sorted(items: list[Any], order: list[Any], key: str) -> list[Any]:
    """In the order of another list; items that it lacks come out as the server's insertion sort leaves them."""
    ranks = [(_position(order, item, key), item) for item in items]
    for end in range(1, len(ranks)):
        at = end
        while at and (min(ranks[at][0], ranks[at - 1][0]) < 0 or ranks[at][0] < ranks[at - 1][0]):
            ranks[at - 1], ranks[at] = ranks[at], ranks[at - 1]
            at -= 1
    return [item for _, item in ranks]


def _position(items: Sequence[Any], item: Any, key: str = "") -> int:
    wanted = _key_of(item, key)
    return next((at for at, each in enumerate(items) if _is_same(_key_of(each, key), wanted)), -1)


def _key_of(item: Any, key: str) -> Any:
    """The identity of an item in a list: the value of its merge key, or itself."""
    if not key:
        return item
    if not isinstance(item, dict):
        raise _unmergeable(f"expected a map[string]interface {{}}, but received a {type(item).__name__}")
    if key not in item:
        raise _unmergeable(f"map: {item} does not contain declared merge key: {key}")
    return item[key]


def _is_same(first: Any, second: Any) -> bool:
    """Equality as in Go: 1 is neither 1.0 nor true."""
    return type(first) is type(second) and bool(first == second)


def _holds_maps(*lists: list[Any]) -> bool:
    """Whether the items of all lists are maps. Raises `StatusError` 422 for lists, 500 for items of several types."""
    items = [item for items in lists for item in items]
    if not items:
        raise _unmergeable("no elements in any of the given slices")
    if isinstance(items[0], list):
        raise refusals.StatusError(422, "", "lists of lists are not supported", details={})
    if len({type(item) for item in items}) > 1:
        raise _unmergeable(f"list element types are not identical: {lists}")
    return isinstance(items[0], dict)


def _declared(schema: Schema, field: str) -> Schema:
    """The shape of a field; the server knows none below free maps."""
    child, is_field = schema.child(field)
    if is_field:
        return child
    if schema.fields is None:
        raise _unmergeable("merging an object in json but data type is not struct, instead is: map")
    raise _unmergeable(f'unable to find api field in struct for the json field "{field}"')


def _list_declared(schema: Schema, field: str) -> Schema:
    shape = _declared(schema, field)
    if shape.type not in {"array", ""}:
        raise _unmergeable("expected slice or array type, but got: struct")
    return shape


def _named(key: str, prefix: str, what: str) -> str:
    start, slash, field = key.partition("/")
    if start != prefix or not slash:
        raise refusals.bad_request(f"invalid patch format of {what}")
    return field


def _unmergeable(why: str) -> refusals.StatusError:
    """The server answers 500 to most patches that do not fit."""
    return refusals.StatusError(500, "", why)
