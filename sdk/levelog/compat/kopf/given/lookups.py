"""Kopf's indices for handlers: read-only mappings from keys to objects' values."""

import copy
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


class KopfStore(Collection[V_co]):
    """The values under one key of an index."""

    def __init__(self, values: Collection[V_co]) -> None:
        self._values = values

    def __iter__(self) -> Iterator[V_co]:
        return (copy.deepcopy(value) for value in self._values)  # what a handler changes in it is its own

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, value: object) -> bool:
        return value in self._values

    def __repr__(self) -> str:
        return repr(list(self._values))


class KopfIndex(Mapping[K, KopfStore[V_co]], Generic[K, V_co]):
    """An index as it was when the call began, and in daemons as it is."""

    def __init__(self, look: Callable[[], Mapping[K, Collection[V_co]]]) -> None:
        self._look = look

    def __getitem__(self, key: K) -> KopfStore[V_co]:
        return KopfStore(self._look()[key])

    def __iter__(self) -> Iterator[K]:
        return iter(self._look())

    def __len__(self) -> int:
        return len(self._look())

    def __repr__(self) -> str:
        return repr(dict(self._look()))


def asked_for(function: Callable[..., Any], names: Iterable[str]) -> list[str]:
    """The names that are parameters of a function; what `**kwargs` takes is not asked for."""
    parameters = inspect.signature(function).parameters
    return [name for name in names if name in parameters]
