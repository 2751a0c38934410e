"""A plain object as a view sees it: a read-only mapping that records every read.

It is no subclass of dict or list: C code reads those directly, past any method.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Self, TypeAlias, overload

Path: TypeAlias = tuple[str | int, ...]
"""Keys and positions from the top of the object; a position may be negative, as in Python."""


class Look(StrEnum):
    """How a place was looked at."""

    VALUE = "value"
    """A scalar, whether a mapping or a list is there, or nothing."""
    IS_THERE = "is_there"
    IS_FILLED = "is_filled"
    """Whether a mapping or list has anything in it."""
    LENGTH = "length"
    KEYS = "keys"
    WHOLE = "whole"
    """Everything at the place and below."""


FieldRead: TypeAlias = tuple[Look, Path]


class Notes:
    """The places that one call read, even if it raised."""

    def __init__(self) -> None:
        self.reads: Final[set[FieldRead]] = set()

    def add(self, look: Look, path: Path) -> None:
        """Note one look."""
        self.reads.add((look, path))


class _Recorded:
    """What a recorded object and a recorded array have in common."""

    __slots__ = ("_content", "_notes", "_path")

    def __init__(self, content: Any, notes: Notes, path: Path = ()) -> None:
        self._content = content
        self._notes = notes
        self._path = path

    def __len__(self) -> int:
        self._notes.add(Look.LENGTH, self._path)
        return len(self._content)

    def __bool__(self) -> bool:
        self._notes.add(Look.IS_FILLED, self._path)
        return bool(self._content)

    def __eq__(self, other: object) -> bool:
        return bool(self._copied() == plain(other))

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType] - as for a dict

    def __repr__(self) -> str:
        return repr(self._copied())

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Any:
        return self._copied()

    def __reduce__(self) -> Any:
        copied = self._copied()
        return type(copied), (copied,)

    def _copied(self) -> Any:
        """All below, in plain dicts and lists; counts as having read all of it."""
        self._notes.add(Look.WHOLE, self._path)
        return plain_copy(self._content)


class RecordedMapping(_Recorded, Mapping[str, Any]):
    """A JSON object whose reads are noted: keys, values and their absence, length, and all of it where it is copied.

    Keys come sorted, so that their order in the JSON is nothing to depend on. It compares equal to a dict of the same
    content. `to_dict()` gives a copy as plain dicts and lists, and counts as having read all of it.
    """

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - JSON has no other keys
            raise KeyError(key)
        path = (*self._path, key)
        self._notes.add(Look.VALUE, path)
        return recorded(self._content[key], self._notes, path)

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str):
            return False
        self._notes.add(Look.IS_THERE, (*self._path, key))
        return key in self._content

    def __iter__(self) -> Iterator[str]:
        self._notes.add(Look.KEYS, self._path)
        return iter(sorted(self._content))

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.to_dict(), **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self.to_dict()}

    def to_dict(self) -> dict[str, Any]:
        """Copy everything below."""
        copied: dict[str, Any] = self._copied()
        return copied


class RecordedSequence(_Recorded, Sequence[Any]):
    """A JSON array whose reads are noted: elements, length, and all of it where it is copied by `to_list()`."""

    __slots__ = ()

    @overload
    def __getitem__(self, position: int) -> Any: ...

    @overload
    def __getitem__(self, position: slice) -> list[Any]: ...

    def __getitem__(self, position: int | slice) -> Any:
        if isinstance(position, slice):
            return [self[each] for each in range(*position.indices(len(self)))]
        path = (*self._path, position.__index__())
        self._notes.add(Look.VALUE, path)
        return recorded(self._content[position], self._notes, path)

    def __add__(self, other: Sequence[Any]) -> list[Any]:
        return [*self.to_list(), *other]

    def __radd__(self, other: Sequence[Any]) -> list[Any]:
        return [*other, *self.to_list()]

    def to_list(self) -> list[Any]:
        """Copy everything below."""
        copied: list[Any] = self._copied()
        return copied


def recorded(value: Any, notes: Notes, path: Path = ()) -> Any:
    """The value, wrapped if it has parts."""
    if isinstance(value, dict):
        return RecordedMapping(value, notes, path)  # pyright: ignore[reportUnknownArgumentType] - JSON
    return RecordedSequence(value, notes, path) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType]


def plain(value: Any) -> Any:
    """The value with plain copies in the place of recorded parts, also inside dicts, lists and tuples."""
    match value:
        case RecordedMapping():
            return value.to_dict()
        case RecordedSequence():
            return value.to_list()
        case dict():
            return {key: plain(part) for key, part in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list():
            return [plain(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
        case tuple() if type(value) is tuple:  # pyright: ignore[reportUnknownArgumentType]
            return tuple(plain(part) for part in value)  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def plain_copy(value: Any) -> Any:
    """A copy of JSON content that shares nothing with it."""
    if isinstance(value, dict):
        return {key: plain_copy(value[key]) for key in sorted(value)}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return [plain_copy(part) for part in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]
