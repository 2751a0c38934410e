"""The differences between two versions of an object, field by field, as readable text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from levelog_base.errors import ConfigurationError
from levelog_base.secrets.scrubbing import is_redacted

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_STEP: Final = re.compile(r'\.?(?P<name>[A-Za-z0-9_-]+)|\["(?P<key>[^"]*)"\]|\[(?P<item>[^"\]]+)\]')
"""One step of a path as a difference has it."""
_UNTOLD: Final = ("metadata.resourceVersion", "metadata.generation", "metadata.managedFields")
"""Fields that the API server counts up or keeps for itself with every write."""
_WIDTH: Final = 60


class Difference(Struct, frozen=True, omit_defaults=True):
    """One field: its path, and its JSON value before and after; a side without the field has no value."""

    path: str
    """`spec.template.spec.containers[web].image`; items of a list by their `name`, else by number; a key with dots in
    brackets and quotes."""
    before: Any | UnsetType = UNSET
    after: Any | UnsetType = UNSET

    def __str__(self) -> str:
        if self.before is UNSET:
            return f"+ {self.path}: {shown(self.after)}"
        if self.after is UNSET:
            return f"- {self.path}: {shown(self.before)}"
        if is_redacted(self.before) and is_redacted(self.after):
            return f"{self.path}: another redacted value"
        return f"{self.path}: {shown(self.before)} -> {shown(self.after)}"


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """The differences of two objects, sorted by path, without what the server counts up with each write."""
    found = (each for each in _compared("", before, after) if each.path not in _UNTOLD)
    return sorted(found, key=lambda difference: difference.path)


def fields_of(manifest: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Path and value of each field that has no parts; what the server counts up with each write is left out."""
    return ((path, value) for path, value in _leaves("", manifest) if path not in _UNTOLD)


def is_within(path: str, field: str) -> bool:
    """Tell whether a path is that of a field, or of a part of it."""
    return path.startswith(field) and path[len(field) :][:1] in ("", ".", "[")


def with_value(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """An object with a value at a path, written as that of a difference. Raises ConfigurationError."""
    steps = list(_STEP.finditer(path))
    if not path or "".join(step[0] for step in steps) != path or path.startswith("."):
        raise ConfigurationError(f"{path!r} is no path of a field: write it as in spec.containers[web].image")
    place: Any = manifest
    for number, step in enumerate(steps):
        key: Any = step["name"] or step["key"] or step["item"]
        if step["item"]:
            key = _number_of(place, key) if isinstance(place, list) else None
        elif not isinstance(place, dict):
            key = None
        if key is None:
            raise ConfigurationError(f"the object has nothing at {''.join(each[0] for each in steps[: number + 1])}")
        if number == len(steps) - 1:
            place[key] = value
        else:
            place = place[key] if isinstance(place, list) else place.setdefault(key, {})
    return manifest


def _number_of(items: Sequence[Any], key: str) -> int | None:
    named = (at for at, item in enumerate(items) if isinstance(item, Mapping) and item.get("name") == key)
    at = next(named, int(key) if key.isdecimal() and len(key) < 19 else None)
    return at if at is not None and at < len(items) else None


def shown(value: Any) -> str:
    """A JSON value on one line, cut in its middle where it is long."""
    text = msgspec.json.encode(value, order="sorted").decode()
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH // 2]}…{text[-_WIDTH // 2 + 1 :]}"


def drift_text(parts: Mapping[str, Sequence[str]]) -> str:
    """Keys that are missing, extra and changed, in one line."""
    return "; ".join(f"{part} {', '.join(keys)}" for part, keys in parts.items())


def _compared(path: str, before: Any, after: Any) -> Iterator[Difference]:
    if before is UNSET or after is UNSET:
        yield Difference(path, before, after)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _parts(path, before, after, _member)
    elif isinstance(before, list) and isinstance(after, list):
        first, second = _by_name(before), _by_name(after)
        if first is None or second is None:
            first, second = dict(enumerate(before)), dict(enumerate(after))
        yield from _parts(path, first, second, _item)
    elif before != after or isinstance(before, bool) is not isinstance(after, bool):
        yield Difference(path, before, after)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from _leaves(_member(path, key), part)
    elif isinstance(value, list) and value:
        for key, part in (_by_name(value) or dict(enumerate(value))).items():
            yield from _leaves(_item(path, key), part)
    else:
        yield path, value


def _parts(path: str, before: Mapping[Any, Any], after: Mapping[Any, Any], place: Any) -> Iterator[Difference]:
    for key in before.keys() | after.keys():
        yield from _compared(place(path, key), before.get(key, UNSET), after.get(key, UNSET))


def _member(path: str, key: str) -> str:
    if not _PLAIN.fullmatch(key):
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


def _item(path: str, key: str | int) -> str:
    return f"{path}[{key}]"


def _by_name(items: Sequence[Any]) -> dict[Any, Any] | None:
    """Items by their names, if each has one of its own."""
    named = {item["name"]: item for item in items if isinstance(item, Mapping) and isinstance(item.get("name"), str)}
    return named if len(named) == len(items) else None
