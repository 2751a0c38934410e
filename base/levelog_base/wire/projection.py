"""The part of an object that a manifest sets: only that is compared.

Mappings are compared by the keys that the manifest sets. A list whose items all have a `name` of their own is matched
by name, whatever the order, and items that the manifest does not name do not count. Every other list is compared item
by item if both have the same length, else as a whole. null in a manifest sets nothing.

A field that holds something else than the manifest says counts as wanted while it holds just what the server made of
that very value when it was applied last (`Applied`): a webhook's change, a quantity in another form.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from levelog_base.wire.canonical import canonical, digest

MOST_APPLIED_BYTES: Final = 64 * 1024
"""What is remembered of one apply goes into a record of the log, so it is limited; beyond it nothing is remembered."""

_IDENTITY: Final = ("apiVersion", "kind")
_METADATA: Final = ("name", "namespace", "ownerReferences")


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""Stands for a field that is not there; null is a value."""


class Applied(Struct, frozen=True, kw_only=True):
    """What the server made of a manifest that was applied, without any of its values."""

    fields: Any
    """The manifest with null for its values; names of items stay."""
    changes: dict[str, str] = {}
    """Digest, by path, of the manifest's value and of the one that the object has in its place."""


def fields_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a manifest sets, without those that say which object it is and who owns it."""
    found: dict[str, Any] = _without_nulls(dict(manifest))
    metadata = {name: value for name, value in found.pop("metadata", {}).items() if name not in _METADATA}
    set_ones = {name: value for name, value in found.items() if name not in _IDENTITY}
    return set_ones | ({"metadata": metadata} if metadata else {})


def applied(manifest: Mapping[str, Any], answer: Mapping[str, Any]) -> Applied | None:
    """What to remember of an apply that the server answered with an object; None if that is too much."""
    wanted = fields_of(manifest)
    changes = {path: _change(want, got) for path, want, got in _differences(wanted, answer, "")}
    found = Applied(fields=_outline(wanted), changes=changes)
    return found if len(canonical(found)) <= MOST_APPLIED_BYTES else None


def project(wanted: Mapping[str, Any], actual: Mapping[str, Any], last: Applied | None = None) -> dict[str, Any]:
    """What an object holds of the fields that are wanted, and of those that were applied last and are not wanted now.

    It equals `wanted` if and only if nothing has to be applied. `wanted` comes from `fields_of`.
    """
    changes = last.changes if last else {}
    shown = _as_wanted(wanted, actual, changes, "")
    return _with_leftover(shown, wanted, last.fields, actual) if last else shown  # type: ignore[no-any-return]


def differing(wanted: Mapping[str, Any], shown: Mapping[str, Any]) -> list[str]:
    """Paths at which two values differ, sorted: `spec.template.spec.containers[web].image`, `args[0]`."""
    both = (*_differences(wanted, shown, ""), *_differences(shown, wanted, ""))
    return sorted({path for path, _, _ in both})


def merge(target: Any, patch: Any) -> Any:
    """The result of a merge patch, RFC 7386."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def unmerged(content: Any, patch: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Where an object is not as a merge patch makes it: `status.phase`."""
    held: Mapping[str, Any] = content if isinstance(content, Mapping) else {}  # pyright: ignore[reportUnknownVariableType]
    for key, value in patch.items():
        place = f"{path}.{key}" if path else key
        if value is None:
            if held.get(key) is not None:
                yield place
        elif isinstance(value, Mapping) and (isinstance(held.get(key), Mapping) or (value and not path)):
            yield from unmerged(held.get(key), value, place)  # pyright: ignore[reportUnknownArgumentType]
        elif key not in held or held[key] != value:
            yield place


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(below) for name, below in value.items() if below is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list | tuple) else value


def _outline(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _outline(below) for name, below in value.items()}
    if isinstance(value, list):
        if _by_name(value) is not None:
            return [_outline(item) | {"name": item["name"]} for item in value]
        return [_outline(item) for item in value] if any(isinstance(item, dict | list) for item in value) else None
    return None


def _as_wanted(wanted: Any, actual: Any, changes: Mapping[str, str], path: str) -> Any:
    if path in changes and changes[path] == _change(wanted, actual):
        return wanted
    if isinstance(wanted, dict) and isinstance(actual, dict):
        parts = (
            (name, _as_wanted(wanted[name], actual.get(name, ABSENT), changes, path_to(path, name))) for name in wanted
        )
        return {name: part for name, part in parts if part is not ABSENT}
    if isinstance(wanted, list) and isinstance(actual, list) and (pairs := _pairs(wanted, actual)):
        parts_of_list = (_as_wanted(want, got, changes, f"{path}[{label}]") for label, want, got in pairs)
        return [part for part in parts_of_list if part is not ABSENT]
    return actual


def _with_leftover(shown: Any, wanted: Any, outline: Any, actual: Any) -> Any:
    """Add what was applied last, is not wanted now, and is still there."""
    if isinstance(outline, dict) and isinstance(wanted, dict) and isinstance(actual, dict) and isinstance(shown, dict):
        added = dict(shown)
        for name in outline.keys() & actual.keys():
            if name not in wanted:
                added[name] = _as_wanted(outline[name], actual[name], {}, "")
            elif name in shown:
                added[name] = _with_leftover(shown[name], wanted[name], outline[name], actual[name])
        return added
    if isinstance(outline, list) and isinstance(wanted, list) and isinstance(actual, list) and isinstance(shown, list):
        kinds = [_by_name(values) for values in (shown, wanted, outline, actual)]
        seen, named, outlined, held = (kind or {} for kind in kinds)
        if None not in kinds and seen.keys() <= named.keys():
            kept = [
                _with_leftover(item, named[name], outlined.get(name), held.get(name)) for name, item in seen.items()
            ]
            gone = [name for name in outlined if name not in named and name in held]
            return kept + [_as_wanted(outlined[name], held[name], {}, "") for name in gone]
        if len(shown) == len(wanted) == len(outline) == len(actual):
            return list(map(_with_leftover, shown, wanted, outline, actual))
    return shown


def _differences(wanted: Any, actual: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Path, wanted and actual value wherever what is wanted is not there."""
    if isinstance(wanted, dict) and isinstance(actual, dict):
        for name, value in wanted.items():
            yield from _differences(value, actual.get(name, ABSENT), path_to(path, name))
    elif isinstance(wanted, list) and isinstance(actual, list) and (pairs := _pairs(wanted, actual)):
        for label, want, got in pairs:
            yield from _differences(want, got, f"{path}[{label}]")
    elif wanted != actual or isinstance(wanted, bool) is not isinstance(actual, bool):
        yield path, wanted, actual


def _pairs(wanted: list[Any], actual: list[Any]) -> list[tuple[str, Any, Any]]:
    """Items that are compared with one another, with their labels; none if the lists are compared as a whole."""
    named, held = _by_name(wanted), _by_name(actual)
    if named is not None and held is not None:
        return [(name, item, held.get(name, ABSENT)) for name, item in named.items()]
    if len(wanted) != len(actual):
        return []
    return [(str(place), want, got) for place, (want, got) in enumerate(zip(wanted, actual, strict=True))]


def _by_name(items: list[Any]) -> dict[str, Any] | None:
    """Items by their names, if each has one of its own."""
    found: dict[str, Any] = {}
    for item in items:
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or name in found:
            return None
        found[name] = item
    return found


def _change(wanted: Any, actual: Any) -> str:
    return digest(canonical(wanted), b"" if actual is ABSENT else canonical(actual))


def path_to(above: str, name: str) -> str:
    """The path of a field below another: `spec.image`, `metadata.labels["example.com/a"]`."""
    if name.replace("-", "").replace("_", "").isalnum():
        return f"{above}.{name}" if above else name
    return f'{above}["{name}"]'
