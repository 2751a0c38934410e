"""Bodies that do not fit their kind's types, in the two ways in which the server says so.

A core kind is decoded into Go structs, and fails as Go's JSON decoder does; an applied configuration is typed by its
schema, and fails as sigs.k8s.io/structured-merge-diff does.
"""

from typing import Any, NamedTuple

import msgspec

from levelog_sandbox.paths import DuplicateItemError, element_of, shown
from levelog_sandbox.schema import Schema
from levelog_sandbox.validation import has_type, name_of_type

Json = dict[str, Any]


class Misfit(NamedTuple):
    """The first value of a wrong type: where (dotted, without indices), what it is, what it should be."""

    path: str
    actual: str
    declared: str

    @property
    def text(self) -> str:
        """As Go's JSON decoder names it; `path` starts with the struct."""
        actual = {"integer": "number", "boolean": "bool"}.get(self.actual, self.actual)
        declared = {"integer": "int32", "boolean": "bool", "object": "map[string]string"}.get(
            self.declared, self.declared
        )
        return f"json: cannot unmarshal {actual} into Go struct field {self.path} of type {declared}"


def misfit(value: Any, schema: Schema, path: str) -> Misfit | None:
    """The first value that a core kind's types do not take; null is taken everywhere."""
    if value is None:
        return None
    if schema.type and not has_type(value, schema.type):
        return Misfit(path, name_of_type(value), schema.type)
    if schema.is_any:
        return None
    if isinstance(value, dict):
        for key, item in value.items():
            child, is_field = schema.child(key)
            found = misfit(item, child, f"{path}.{key}" if is_field else path)
            if found:
                return found
    elif isinstance(value, list) and schema.element:
        return next(filter(None, (misfit(item, schema.element, path) for item in value)), None)
    return None


def typing_faults(value: Any, schema: Schema, path: str = "") -> list[str]:
    """Everything in an applied configuration that its schema does not take: unknown fields, types, duplicate items."""
    if value is None:
        return []
    if schema.type and not has_type(value, schema.type):
        declared = {"integer": "numeric (int or float)", "number": "numeric (int or float)", "object": "map"}
        wanted = declared.get(schema.type, "list" if schema.type == "array" else schema.type)
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return [f"{path}: expected {wanted}, got &value.valueUnstructured{{Value:{text}}}"]
    found: list[str] = []
    if isinstance(value, dict):
        is_free = schema.is_any and (schema.preserve or schema.type != "object")
        for key, item in value.items():
            here = f"{path}.{key}"
            if is_free or schema.knows(key):
                found += typing_faults(item, schema.child(key)[0], here)
            else:
                found.append(f"{here}: field not declared in schema")
    elif isinstance(value, list) and schema.type == "array" and schema.element:
        if not schema.atomic:
            found += _item_faults(value, schema, path)
        for index, item in enumerate(value):
            found += typing_faults(item, schema.element, f"{path}[{index}]")
    return found


def _item_faults(items: list[Any], schema: Schema, path: str) -> list[str]:
    found: list[str] = []
    seen: set[str] = set()
    for index, item in enumerate(items):
        try:
            element = element_of(item, schema)
        except DuplicateItemError as error:
            found.append(f"{path}: element {index}: {error}")
            continue
        if element in seen:
            found.append(f"{path}: duplicate entries for key {shown((element,))}")
        seen.add(element)
    return found


def typing_error(faults: list[str]) -> str:
    """One text for one or several faults."""
    return faults[0] if len(faults) == 1 else "errors:\n" + "\n".join(f"  {fault}" for fault in faults)
