"""The index as a handler sees it; the rows behind it are the fold's."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


class Index(Mapping[K, Collection[V_co]]):
    """A read-only mapping from keys to the values that objects gave under them.

    Every read is recorded as a dependency of the view that makes it, so that a change of just that key wakes it.
    Values under a key come in the order of the objects' names. Lookup is O(1) in the number of objects.
    """

    @abstractmethod
    def __getitem__(self, key: K) -> Collection[V_co]:
        """Values under the key; an empty collection if no object gave any, which is recorded as a read too."""

    @property
    @abstractmethod
    def is_stale(self) -> bool:
        """Whether history was missed and the objects behind the index are being listed again.

        What the index says is then older than usual, by an unknown time. It is recorded as a read, so that the view
        wakes when this changes.
        """

    @abstractmethod
    def __iter__(self) -> Iterator[K]:
        """Keys in canonical order; depends on every key of the index."""

    @abstractmethod
    def __len__(self) -> int:
        """Count the keys; depends on every key of the index."""

    @abstractmethod
    def __contains__(self, key: object) -> bool:
        """Tell whether any object gave a value under the key."""
