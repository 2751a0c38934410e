"""What a CustomResourceDefinition would break of the objects that are stored under an earlier one."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from levelog_cli.crds.schemas import INT_OR_STRING, KEPT, LIST_TYPE, RULES, Json

_NAMES: Final = ("plural", "singular", "kind", "listKind")
_WIDER: Final = {("integer", "number"), ("integer", INT_OR_STRING), ("string", INT_OR_STRING)}
"""Old and new type, where every old value is one of the new."""

_LOWER: Final = ("minimum", "minLength", "minItems", "minProperties")
_UPPER: Final = ("maximum", "maxLength", "maxItems", "maxProperties")
_AS_IT_WAS: Final = ("format", "pattern", "multipleOf", LIST_TYPE)
"""What may go, and may not come or change."""


def breaks(earlier: Json, later: Json) -> Iterator[str]:
    """Each path and why, sorted as the later definition has them; nothing if every stored object stays as it is."""
    old, new = earlier["spec"], later["spec"]
    if old["scope"] != new["scope"]:
        yield f"scope: was {old['scope']}, is {new['scope']}"
    for name in _NAMES:
        if name in old["names"] and old["names"][name] != new["names"][name]:
            yield f"names.{name}: was {old['names'][name]}, is {new['names'][name]}"
    before, after = ({version["name"]: version for version in spec["versions"]} for spec in (old, new))
    stored = next(name for name, version in before.items() if version["storage"])
    for name in (earlier.get("status") or {}).get("storedVersions") or [stored]:
        if name not in after:
            yield f"{name}: objects are stored in this version, and it is gone"
    for name in (name for name in before if name in after):
        yield from (f"{name} {line}" for line in _narrowed(_schema(before[name]), _schema(after[name]), ""))
    now = next(name for name, version in after.items() if version["storage"])
    if now != stored:
        lines = _narrowed(_schema(before[stored]), _schema(after[now]), "")
        yield from (f"{stored} read as {now} {line}" for line in lines)


def _schema(version: Json) -> Json:
    return version.get("schema", {}).get("openAPIV3Schema") or {KEPT: True}


def _narrowed(old: Json, new: Json, path: str) -> Iterator[str]:
    """The places where the new schema refuses or loses values of the old one."""
    here = path or "object"
    before, after = _type(old), _type(new)
    if after not in (before, KEPT) and (before, after) not in _WIDER:
        yield f"{here}: was {_said(before)}, is {_said(after)}"
        return
    if old.get("nullable") and not new.get("nullable") and after != KEPT:
        yield f"{here}: may not be null any more"
    if "enum" in new:
        gone = [value for value in old.get("enum", ()) if value not in new["enum"]]
        if gone or "enum" not in old:
            yield f"{here}: may not be {', '.join(map(str, gone))} any more" if gone else f"{here}: is one of a few now"
    yield from (f"{here}: {line}" for line in _bounds(old, new))
    yield from (f"{here}: has a rule that it had not: {rule}" for rule in _rules(new) if rule not in _rules(old))
    yield from _inside(old, new, path)


def _inside(old: Json, new: Json, path: str) -> Iterator[str]:
    keeps = new.get(KEPT, False)
    fields: Json = new.get("properties", {})
    rest = _others(new)
    for name in new.get("required", ()):
        if name not in old.get("required", ()) and "default" not in fields.get(name, {}):
            yield f"{_below(path, name)}: is required now, and has no default"
    for name, below in old.get("properties", {}).items():
        if name in fields or rest:
            yield from _narrowed(below, fields.get(name) or rest, _below(path, name))
        elif not keeps:
            yield f"{_below(path, name)}: is gone, and with it what objects hold there"
    if old.get(KEPT) and not keeps and not rest:
        yield f"{path or 'object'}: loses fields that it does not name"
    if open_ := _others(old):
        if rest:
            yield from _narrowed(open_, rest, f"{path}.*")
        elif not keeps:
            yield f"{path}: loses keys that it does not name"
    if "items" in old and "items" in new:
        yield from _narrowed(old["items"], new["items"], f"{path}[]")


def _bounds(old: Json, new: Json) -> Iterator[str]:
    tighter: Callable[[Any, Any], bool]
    for names, tighter in ((_LOWER, lambda was, now: now > was), (_UPPER, lambda was, now: now < was)):
        for name in names:
            was, now = old.get(name), new.get(name)
            exclusive = f"exclusive{name.capitalize()}"
            if now is not None and (was is None or tighter(was, now)):
                yield f"{name} is {now}" + (f", was {was}" if was is not None else "")
            elif now is not None and now == was and new.get(exclusive) and not old.get(exclusive):
                yield f"{exclusive} came"
    for name in _AS_IT_WAS:
        if name in new and new[name] != old.get(name) and new[name] != "atomic":
            yield f"{name} is {new[name]}" + (f", was {old[name]}" if name in old else "")


def _others(schema: Json) -> Json:
    """The schema of fields that are not named; empty: there are none."""
    others = schema.get("additionalProperties")
    return {KEPT: True} if others is True else others or {}


def _type(schema: Json) -> str:
    return INT_OR_STRING if schema.get(INT_OR_STRING) else schema.get("type", KEPT)


def _said(type_: str) -> str:
    return {KEPT: "anything", INT_OR_STRING: "integer or string"}.get(type_, type_)


def _rules(schema: Json) -> list[str]:
    return [rule["rule"] for rule in schema.get(RULES, ())]


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
