"""Applies a schema to an incoming object: prunes unknown fields, sets defaults, checks values.

What does not fit the types is told in two ways, as by the server: a core kind is decoded into Go structs, and fails as
Go's JSON decoder does; an applied configuration is typed by its schema, and fails as structured-merge-diff does.

Limits: of JSON schema only types, required, enum, pattern, minimum and maximum rules, nullable and int-or-string are
read; allOf, anyOf, oneOf, not and format are not. `celrules.py` reads rules in CEL.
"""

import re
from typing import Any, Final, NamedTuple

import msgspec

from levelog_sandbox.api import refusals
from levelog_sandbox.api.refusals import RefusalCause
from levelog_sandbox.fields.paths import DuplicateItemError, element_of, shown
from levelog_sandbox.schemas.shapes import Schema

Json = dict[str, Any]


def pruned(value: Any, schema: Schema, unknown: list[str] | None = None, path: str = "") -> Any:
    """The value without fields that its schema does not know, and without nulls where they mean absent.

    The paths of the former, as the server prints them, are added to `unknown`.
    """
    if isinstance(value, dict):
        if schema.is_any and (schema.preserve or schema.type != "object"):
            return value
        kept: Json = {}
        for key, item in value.items():
            child, is_field = schema.child(key)
            here = f"{path}.{key}" if path else key
            is_declared = is_field or schema.element is not None
            is_dropped = item is None and is_declared and not child.nullable and not child.has_default
            if not schema.knows(key):
                if unknown is not None:
                    unknown.append(here)
            elif not is_dropped:
                kept[key] = pruned(item, child, unknown, here)
        return kept
    if isinstance(value, list) and schema.type == "array" and schema.element:
        return [pruned(item, schema.element, unknown, f"{path}[{index}]") for index, item in enumerate(value)]
    return value


def unknown_fields(value: Any, schema: Schema) -> list[str]:
    """What the server says of each field that pruning would drop."""
    found: list[str] = []
    pruned(value, schema, found)
    return [f'unknown field "{path}"' for path in found]


def defaulted(value: Any, schema: Schema) -> Any:
    """The value with declared defaults where a field is absent, or null though not nullable."""
    if schema.is_any:
        return value
    if isinstance(value, dict):
        filled = dict(value)
        for key, child in (schema.fields or {}).items():
            if child.has_default and (key not in filled or (filled[key] is None and not child.nullable)):
                filled[key] = child.default
        for key, item in filled.items():
            if isinstance(item, dict | list):
                filled[key] = defaulted(item, schema.child(key)[0])
        return filled
    if isinstance(value, list) and schema.element:
        return [defaulted(item, schema.element) if isinstance(item, dict | list) else item for item in value]
    return value


def faults(value: Any, schema: Schema, path: str = "") -> list[RefusalCause]:
    """Every way in which the value breaks its schema, in the words of the server."""
    if value is None:
        return [] if schema.nullable or not schema.type else [_wrong_type(value, schema, path)]
    if schema.int_or_string:
        is_either = has_type(value, "integer") or isinstance(value, str)
        return [] if is_either else [_wrong_type(value, schema, path)]
    if schema.type and not has_type(value, schema.type):
        return [_wrong_type(value, schema, path)]
    found = _broken_rules(value, schema.rules, path) if schema.rules else []
    if schema.is_any:
        return found
    if isinstance(value, dict):
        found += [refusals.required(_join(path, key)) for key in schema.required if key not in value]
        for key, item in value.items():
            child, is_field = schema.child(key)
            found += faults(item, child, _join(path, key) if is_field or not path else f"{path}.{key}")
    elif isinstance(value, list) and schema.element:
        for index, item in enumerate(value):
            found += faults(item, schema.element, f"{path}[{index}]")
        found += _duplicates(value, schema, path)
    return found


_PYTHON_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def has_type(value: Any, declared: str) -> bool:
    """Whether a JSON value is of a type in OpenAPI's words; whole floats are integers, booleans are not."""
    if isinstance(value, bool):
        return declared == "boolean"
    if declared == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _PYTHON_TYPES.get(declared, (object,)))


def name_of_type(value: Any) -> str:
    """A JSON value's type in OpenAPI's words."""
    if value is None:
        return "null"
    for declared in ("boolean", "integer", "number", "string", "array", "object"):
        if has_type(value, declared):
            return declared
    raise AssertionError(f"not a JSON value: {value!r}")


def _wrong_type(value: Any, schema: Schema, path: str) -> RefusalCause:
    declared = schema.type or "integer,string"
    actual = name_of_type(value)
    return RefusalCause(
        path,
        "FieldValueTypeInvalid",
        f'Invalid value: "{actual}": {path} in body must be of type {declared}: "{actual}"',
    )


def _broken_rules(value: Any, rules: Json, path: str) -> list[RefusalCause]:
    found: list[RefusalCause] = []
    if "enum" in rules and value not in rules["enum"]:
        found.append(refusals.unsupported_value(path, value, [str(choice) for choice in rules["enum"]]))
    if isinstance(value, str):
        size, unit = len(value), "Length"
        if "pattern" in rules and not re.search(rules["pattern"], value):
            why = f"{path} in body should match '{rules['pattern']}'"
            found.append(refusals.invalid_value(path, value, why))
    elif isinstance(value, dict | list):
        size, unit = len(value), "Items" if isinstance(value, list) else "Properties"
    else:
        size, unit = 0, ""
        if "minimum" in rules and value < rules["minimum"]:
            why = f"{path} in body should be greater than or equal to {rules['minimum']}"
            found.append(refusals.invalid_value(path, value, why))
        if "maximum" in rules and value > rules["maximum"]:
            why = f"{path} in body should be less than or equal to {rules['maximum']}"
            found.append(refusals.invalid_value(path, value, why))
    nouns = {"Length": "chars long", "Items": "items", "Properties": "properties"}
    if size < rules.get("min" + unit, 0):
        why = f"{path} in body should be at least {rules['min' + unit]} {nouns[unit]}"
        found.append(refusals.invalid_value(path, value, why))
    most = rules.get("max" + unit) if unit else None
    if most is not None and size > most:
        found.append(refusals.too_long(path, most) if unit == "Length" else refusals.too_many(path, size, most))
    return found


def _duplicates(items: list[Any], schema: Schema, path: str) -> list[RefusalCause]:
    if schema.atomic:
        return []
    seen: set[str] = set()
    found: list[RefusalCause] = []
    for index, item in enumerate(items):
        try:
            element = element_of(item, schema)
        except DuplicateItemError:
            continue  # the schema of a keyed list requires its keys, or gives them defaults
        if element in seen:
            found.append(RefusalCause(f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {element[2:]}"))
        seen.add(element)
    return found


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


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
        if item is None:
            keyed, keyless = (
                "with keys may not have a null element",
                "without keys has an element that's an explicit null",
            )
            found.append(f"{path}: element {index}: associative list {keyed if schema.keys else keyless}")
            continue
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
