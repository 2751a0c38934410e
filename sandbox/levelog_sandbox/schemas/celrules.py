"""Rules in CEL (x-kubernetes-validations) of a custom resource's schema, on a value and on the one before it.

Limits: without the libraries of `expressions.py` no rule is checked. Of Kubernetes' own functions, those of quantities,
URLs, addresses, versions and named formats are missing, and `indexOf` of lists; `unchecked` names the rules that call
one. The schema does not type the rules, and nobody counts what they cost. Lists of type set or map are compared in
their order. A rule that an unchanged value breaks is ignored, without the server's warning.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from levelog_base.counting import counted
from levelog_sandbox.api import refusals
from levelog_sandbox.api.refusals import RefusalCause
from levelog_sandbox.schemas.expressions import LIBRARIES, CelError, celvalue, compiled, condition, is_available
from levelog_sandbox.schemas.shapes import Schema

Json = dict[str, Any]

# Origin: hasBlockingErr in apiextensions-apiserver.
_BLOCKING: Final = frozenset(
    f"FieldValue{name}" for name in ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid")
)
_NOT_CHECKED: Final = refusals.invalid_value(
    "<nil>",
    None,
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation",
)
_STEP: Final = re.compile(r"\.([^.\[]+)|\['((?:[^'\\]|\\.)*)'\]")
_NO_CHECK: Final = "this cluster does not check"
_SHOWN: Final = 3
"""Rules that are named of a definition when none is checked."""


def faults(body: Json, before: Json | None, schema: Schema, found: list[RefusalCause]) -> list[RefusalCause]:
    """The broken rules, in the words of the server; `found` was wrong before, `before` is None for a new object."""
    if not schema.has_validations or not is_available():
        return []
    if any(cause.reason in _BLOCKING for cause in found):
        return [_NOT_CHECKED]
    return list(_broken(_Place(body, before, schema, "", None if before is None else (body, before)), is_root=True))


def unchecked(schema: Schema) -> list[str]:
    """Which rules are not checked here and why, each in a sentence without its stop."""
    rules = {rule["rule"]: rule for rule in _rules(schema)}
    if rules and not is_available():
        shown = ", ".join([*rules][:_SHOWN]) + (", …" if len(rules) > _SHOWN else "")
        how = f"pip install {LIBRARIES}"
        return [f"{_NO_CHECK} {counted(len(rules), 'rule')} in CEL, a real one does ({how}): {shown}"]
    found: list[str] = []
    for text, rule in rules.items():
        try:
            condition(text, is_old_optional=bool(rule.get("optionalOldSelf")))
        except CelError as error:
            found.append(f"{_NO_CHECK} 1 rule in CEL, a real one checks or refuses it: {text} ({error})")
    return found


class _Place(NamedTuple):
    """A value with the one that it replaces, None if there is none to compare with."""

    value: Any
    old: Any
    schema: Schema
    path: str
    kept: tuple[Any, Any] | None
    """The nearest value, itself or what holds it, that has one to compare with, and that."""


def _broken(at: _Place, *, is_root: bool = False) -> Iterator[RefusalCause]:
    schema = at.schema
    if not schema.has_validations:
        return
    if schema.validations and at.value is not None:
        value = celvalue(at.value, schema, is_root=is_root)
        old = None if at.old is None else celvalue(at.old, schema, is_root=is_root)
        for rule in schema.validations:
            cause, is_transition = _cause(rule, at, value, old)
            is_kept = at.kept is not None and at.kept[0] == at.kept[1]
            if cause is not None and (is_transition or not is_kept):
                yield cause
    if isinstance(at.value, dict):
        olds: Json = at.old if isinstance(at.old, dict) and not schema.atomic else {}
        for key, item in at.value.items():
            child, is_field = schema.child(key)
            path = (f"{at.path}.{key}" if at.path else key) if is_field else f"{at.path}[{key}]"
            yield from _broken(_below(at, item, olds.get(key), child, path))
    elif isinstance(at.value, list) and schema.element:
        items = _by_keys(at.old, schema)
        for index, item in enumerate(at.value):
            yield from _broken(_below(at, item, items.get(_keys(item, schema)), schema.element, f"{at.path}[{index}]"))


def _below(at: _Place, value: Any, old: Any, schema: Schema, path: str) -> _Place:
    return _Place(value, old, schema, path, at.kept if old is None else (value, old))


def _cause(rule: Json, at: _Place, value: Any, old: Any) -> tuple[RefusalCause | None, bool]:
    """The part of a value that breaks a rule, and whether the rule compares it with the old one."""
    is_old_optional = bool(rule.get("optionalOldSelf"))
    try:
        expression = condition(rule["rule"], is_old_optional=is_old_optional)
    except CelError:
        return None, False  # `unchecked` has named it
    if expression.uses_old and old is None and not is_old_optional:
        return None, True
    text = rule.get("message", "").strip() or f"failed rule: {rule['rule'].strip()}"
    try:
        if expression.of(value, old) is True:
            return None, expression.uses_old
    except CelError as error:
        said = rule.get("message", "").strip() or rule["rule"].strip()
        why = f"{error} evaluating rule: {said}"
        if str(error).startswith("no such overload"):
            unmatched = "call arguments did not match a supported operator, function or macro signature for rule"
            why = f"'{error}': {unmatched}: {said}"
        return refusals.invalid_value(at.path or "<nil>", at.schema.type, why), expression.uses_old
    if "messageExpression" in rule:
        text = _said(rule["messageExpression"], value, old) or text
    below = _field(rule.get("fieldPath", ""), at.schema)
    path = ".".join(each for each in (at.path, below) if each) or "<nil>"
    return _refusal(rule.get("reason", ""), path, at.value, text), expression.uses_old


def _refusal(reason: str, path: str, value: Any, text: str) -> RefusalCause:
    shown = "" if isinstance(value, dict | list) else msgspec.json.encode(value).decode()
    match reason:
        case "FieldValueRequired":
            return refusals.required(path, text)
        case "FieldValueForbidden":
            return RefusalCause(path, reason, f"Forbidden: {text}")
        case "FieldValueDuplicate":
            return RefusalCause(path, reason, f"Duplicate value: {shown}".removesuffix(": "))
        case _:
            return RefusalCause(path, "FieldValueInvalid", "Invalid value: " + (f"{shown}: {text}" if shown else text))


def _said(expression: str, value: Any, old: Any) -> str:
    """The message that an expression yields; empty for one that the server does not take."""
    try:
        text = compiled(expression).of(value, old)
    except CelError:
        return ""
    return text.strip() if isinstance(text, str) and "\n" not in text else ""


def _field(path: str, schema: Schema) -> str:
    """The field that a rule names, as the server writes it: `.x['y-z'].m['k']` becomes `x.y-z.m[k]`."""
    written = ""
    for name, key in _STEP.findall(path):
        schema, is_field = schema.child(name or key)
        written += f".{name or key}" if is_field else f"[{name or key}]"
    return written.removeprefix(".")


def _by_keys(old: Any, schema: Schema) -> dict[Any, Any]:
    """The items of a list before, as far as those of one after can be found among them."""
    if not isinstance(old, list) or schema.list_type != "map":
        return {}
    return {_keys(item, schema): item for item in old}


def _keys(item: Any, schema: Schema) -> Any:
    if schema.list_type != "map" or not isinstance(item, dict):
        return None
    return tuple(msgspec.json.encode(item.get(key)) for key in schema.keys)


def _rules(schema: Schema) -> Iterator[Json]:
    yield from schema.validations
    for child in (*(schema.fields or {}).values(), *([schema.element] if schema.element else ())):
        if child.has_validations:
            yield from _rules(child)
