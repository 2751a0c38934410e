"""Sets of field paths: those of a value, the difference of two values, and the form in `managedFields` (FieldsV1).

A path is a tuple of FieldsV1 elements: `f:name` for a field or map key, `k:{"name":"web"}` for an item of a keyed
list, `v:"x"` for a member of a set. A set of paths is a plain Python set, so its algebra is Python's.
Rules: sigs.k8s.io/structured-merge-diff v6.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from levelog_sandbox.schemas.shapes import ANY, Schema

Json = dict[str, Any]
Path = tuple[str, ...]
Paths = set[Path]
ABSENT: Final = object()


class PathDifference(NamedTuple):
    """Paths by what became of them; no path is in two of the sets."""

    added: Paths
    modified: Paths
    removed: Paths


class DuplicateItemError(Exception):
    """A keyed list or a set holds one item twice, or an item lacks a key of its list."""


def element_of(item: Any, schema: Schema) -> str:
    """The path element of an item of a set or keyed list; a key left out takes its declared default."""
    if schema.list_type == "set" or not isinstance(item, dict):
        return "v:" + msgspec.json.encode(item, order="deterministic").decode()
    fields = schema.element.fields if schema.element else None
    keys: Json = {}
    for key in sorted(schema.keys):
        if key in item:
            keys[key] = item[key]
        elif fields and key in fields and fields[key].has_default:
            keys[key] = fields[key].default
        else:
            why = f'element that omits key field "{key}" (and doesn\'t have default value)'
            raise DuplicateItemError(f"associative list with keys has an {why}")
    return "k:" + msgspec.json.encode(keys).decode()


def keyed_items(items: list[Any], schema: Schema) -> dict[str, Any]:
    """Items of a set or keyed list by path element, in order; the first of a duplicate counts."""
    keyed: dict[str, Any] = {}
    for item in items:
        keyed.setdefault(element_of(item, schema), item)
    return keyed


def is_leaf(value: Any, schema: Schema) -> bool:
    """Whether the value is owned as a whole: scalars, atomics, and lists of unknown shape."""
    if isinstance(value, dict):
        return schema.atomic and schema.type == "object"
    if isinstance(value, list):
        return schema.type != "array" or schema.atomic
    return True


def item_schema(schema: Schema) -> Schema:
    """The schema of a list's items."""
    return schema.element or ANY


def paths_of(value: Json, schema: Schema) -> Paths:
    """Every path that an applied configuration claims."""
    found: Paths = set()
    _collect(value, schema, (), found)
    return found


def _collect(value: Any, schema: Schema, path: Path, found: Paths) -> None:
    if is_leaf(value, schema):
        found.add(path)
    elif isinstance(value, dict):
        for key, item in value.items():
            child, is_field = schema.child(key)
            below = (*path, "f:" + key)
            _collect(item, child, below, found)
            if item is None or item == {} or not is_field:
                found.add(below)
    else:
        for element, item in keyed_items(value, schema).items():
            below = (*path, element)
            _collect(item, item_schema(schema), below, found)
            found.add(below)


def compare(old: Json, new: Json, schema: Schema) -> PathDifference:
    """The differences in the paths of two objects of one kind."""
    difference = PathDifference(set(), set(), set())
    _compare(old, new, schema, (), difference)
    return difference


def _compare(old: Any, new: Any, schema: Schema, path: Path, out: PathDifference) -> None:
    if old is not ABSENT and new is not ABSENT and type(old) is type(new) and old == new:
        return
    # null stands for nothing of whatever the other side is
    if old is None and new is not ABSENT and not is_leaf(new, schema):
        old = type(new)()
    elif new is None and old is not ABSENT and not is_leaf(old, schema):
        new = type(old)()
    sides = [side for side in (old, new) if side is not ABSENT]
    leaves = any(is_leaf(side, schema) for side in sides) or len({type(side) for side in sides}) > 1
    if leaves or not any(sides):
        (out.added if old is ABSENT else out.removed if new is ABSENT else out.modified).add(path)
        return
    before, after = _children(old, schema), _children(new, schema)
    nothing = (ABSENT, ANY)
    for element in before.keys() | after.keys():
        (earlier, known), (later, child) = before.get(element, nothing), after.get(element, nothing)
        _compare(earlier, later, known if later is ABSENT else child, (*path, element), out)
    if old is ABSENT:
        out.added.add(path)
    elif new is ABSENT:
        out.removed.add(path)


def _children(value: Any, schema: Schema) -> dict[str, tuple[Any, Schema]]:
    """The members of an object, a set or a keyed list, with their schema, by path element; none where it is absent."""
    if isinstance(value, dict):
        return {"f:" + key: (item, schema.child(key)[0]) for key, item in value.items()}
    if isinstance(value, list):
        child = item_schema(schema)
        return {element: (item, child) for element, item in keyed_items(value, schema).items()}
    return {}


def with_named_parents(paths: Paths, schema: Schema) -> Paths:
    """The paths and every declared field above them; map entries and list items above them are not added."""
    closed = set(paths)
    for path in paths:
        node = schema
        for depth, element in enumerate(path[:-1], 1):
            is_field = False
            if element.startswith("f:"):
                node, is_field = node.child(element[2:])
            else:
                node = item_schema(node)
            if is_field:
                closed.add(path[:depth])
    return closed


def without(value: Json, paths: Paths, schema: Schema) -> Json:
    """The object less the given paths and all below them; what the removal empties is dropped as well."""
    trie: Json = {}
    for path in paths:
        node = trie
        for element in path:
            node = node.setdefault(element, {})
        node[""] = True
    kept = _remove(value, trie, schema)
    return kept if isinstance(kept, dict) else {}


def _remove(value: Any, trie: Json, schema: Schema) -> Any:
    if is_leaf(value, schema):
        return None if isinstance(value, dict | list) else value
    if isinstance(value, dict):
        kept: Json = {}
        for key, item in value.items():
            below = trie.get("f:" + key)
            if below is None:
                kept[key] = item
            elif "" not in below:
                kept[key] = _remove(item, below, schema.child(key)[0])
        return kept or None
    items: list[Any] = []
    for item in value:
        below = trie.get(element_of(item, schema))
        if below is None:
            items.append(item)
        elif "" not in below:
            items.append(_remove(item, below, item_schema(schema)))
    return items or None


def to_fields(paths: Iterable[Path]) -> Json:
    """FieldsV1: nested objects, in which `.` marks a parent that is itself a member."""
    fields: Json = {}
    members = sorted(paths)
    for path in members:
        node = fields
        for element in path:
            node = node.setdefault(element, {})
    for path in members:
        node = fields
        for element in path:
            node = node[element]
        if node and path:
            children = dict(node)
            node.clear()
            node["."] = {}
            node.update(children)
    return fields


def from_fields(fields: Json) -> Paths:
    """The paths of a FieldsV1 object."""
    found: Paths = set()
    _read(fields, (), found)
    return found


def _read(fields: Json, path: Path, found: Paths) -> None:
    for element, below in fields.items():
        if element == ".":
            found.add(path)
            continue
        here = (*path, element)
        if below:
            _read(below, here, found)
        else:
            found.add(here)


def shown(path: Path) -> str:
    """A path as the server prints it: `.spec.containers[name="web"].image`."""
    text = ""
    for element in path:
        kind, content = element[:2], element[2:]
        if kind == "f:":
            text += f".{content}"
        elif kind == "k:":
            keys = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
            text += "[" + ",".join(f"{key}={bytes(raw).decode()}" for key, raw in keys.items()) + "]"
        else:
            text += f"[={content}]"
    return text
