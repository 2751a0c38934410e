"""Edges: how an object differs from the state that an edge handler handled last."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from levelog_base.mappings import plain
from levelog_base.wire.canonical import is_other, keys_of, pointer_to

Reason: TypeAlias = Literal["create", "resume", "update", "delete"]
Operation: TypeAlias = Literal["add", "change", "remove"]

_IDENTITY: Final = ("name", "namespace", "uid", "creationTimestamp", "ownerReferences")
"""Fields of metadata that are handed over, and are no edge."""
_ESSENTIAL: Final = ("labels", "annotations")
"""Fields of metadata whose change is an edge."""


class FieldChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One value that differs, at a JSON pointer (RFC 6901): `/spec/replicas`. A list is one value."""

    op: Operation
    path: str
    old: Any = None
    new: Any = None


Diff: TypeAlias = tuple[FieldChange, ...]
"""How two states differ, by path."""


class Unfinished(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call of an adapter leaves that did not do what it is for: the next one goes on from it."""

    began: datetime
    """When the first one was decided on."""
    retry: int = 0
    """How often the function was called."""
    error: str = ""
    delay: timedelta = timedelta(0)
    """After which it is called again."""
    is_over: bool = False
    """It is not called again."""
    awaits: tuple[str, ...] = ()
    """JSON pointers: once one of these fields is there, which was not, it is called again without a delay."""
    kept: Any = None
    """What the adapter keeps for the next call, with a JSON form."""


class Edge(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The request of a call: what an edge handler has to handle and, once the call is done, what it handled."""

    reason: Reason
    is_noted: bool = False
    """The handler is not called for this edge; it is remembered as what it knows of the object."""
    is_finalizing: bool = False
    """The object that is being deleted is there until this is handled, or given up."""
    object: dict[str, Any]
    """The essence of the object, and who it is."""
    diff: Diff = ()
    """Differences from what was handled before."""
    carried: Unfinished | None = None
    """What the call before has left, which this one repeats; None: it is the first."""

    @property
    def old(self) -> dict[str, Any] | None:
        """The object as it was handled before; None where there was nothing before."""
        if self.reason in ("create", "resume"):
            return None
        values = flat(essence(self.object))
        for change in self.diff:
            if change.op == "add":
                del values[change.path]
            else:
                values[change.path] = change.old
        return _with_identity(unflat(values), self.object)


def handled_object(found: Mapping[str, Any]) -> dict[str, Any]:
    """What is handed over of an object: its essence, and of its metadata who it is."""
    return _with_identity(essence(found), found)


def essence(found: Mapping[str, Any]) -> dict[str, Any]:
    """What makes an edge when it changes: of the metadata only labels and annotations."""
    kept = {key: plain(found[key]) for key in found if key not in ("metadata", "apiVersion", "kind")}
    metadata = found["metadata"]
    told = {key: plain(metadata[key]) for key in _ESSENTIAL if metadata.get(key)}
    return kept | ({"metadata": told} if told else {})


def _with_identity(essential: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    named = {key: plain(found[key]) for key in ("apiVersion", "kind") if key in found}
    metadata = found["metadata"]
    identity = {key: plain(metadata[key]) for key in _IDENTITY if metadata.get(key)}
    return {**named, **essential, "metadata": identity | essential.get("metadata", {})}


def flat(content: Mapping[str, Any]) -> dict[str, Any]:
    """The values of nested mappings, by JSON pointer; lists, scalars and empty mappings are values."""
    return dict(_leaves(content, ""))


def unflat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `flat`."""
    content: dict[str, Any] = {}
    for path, value in values.items():
        *above, last = keys_of(path)
        place = content
        for key in above:
            place = place.setdefault(key, {})
        place[last] = value
    return content


def diff_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> Diff:
    """The changes from one flat state to another, by path."""
    changes: list[FieldChange] = []
    for path in sorted(before.keys() | after.keys()):
        if path not in before:
            changes.append(FieldChange(op="add", path=path, new=after[path]))
        elif path not in after:
            changes.append(FieldChange(op="remove", path=path, old=before[path]))
        elif is_other(before[path], after[path]):
            changes.append(FieldChange(op="change", path=path, old=before[path], new=after[path]))
    return tuple(changes)


def under(values: Mapping[str, Any], pointer: str) -> dict[str, Any]:
    """The values of a flat state that lie at a pointer or below."""
    return {path: value for path, value in values.items() if path == pointer or path.startswith(f"{pointer}/")}


def value_at(content: Mapping[str, Any] | None, pointer: str) -> Any | UnsetType:
    """The value at a pointer; UNSET where there is none."""
    found: Any = UNSET if content is None else content
    for key in keys_of(pointer):
        found = found.get(key, UNSET) if isinstance(found, Mapping) else UNSET
    return found


def value_or_none(content: Mapping[str, Any] | None, pointer: str) -> Any:
    """The value at a pointer; None where there is none."""
    found = value_at(content, pointer)
    return None if found is UNSET else found


def pointer_of(field: str) -> str:
    """A field as a JSON pointer: `spec.image`, or a pointer as it is."""
    return field if field.startswith("/") else pointer_to(field.split("."))


def _leaves(content: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        path = above + pointer_to((key,))
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, path)
        else:
            yield path, value
