"""How functions look things up: indices, live indices, and other objects."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from levelog.resources import ResourceBase

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
K_contra = TypeVar("K_contra", contravariant=True)
R = TypeVar("R", bound=ResourceBase)


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


class Contact(NamedTuple):
    """How far the watch behind an index can be trusted."""

    is_stale: bool
    """The resource is not listed to the end: for the first time, or again after history was missed."""
    last_contact: datetime | None
    """When a list or a bookmark last came, about each minute while the watch goes on; None: never."""


class LiveIndex(ABC, Generic[K_contra, V_co]):
    """An index that a start-up hook, and the tasks that it starts, read and wait for: `images: LiveIndex[str, str]`.

    The parameter is named as the index. Values are those that the log has shown up to now, in the order of the objects'
    names. Waiting costs nothing while nothing changes: no server is polled. A process that loses its database goes on
    to wait, and looks again once it is back.
    """

    @abstractmethod
    async def get(self, key: K_contra) -> Collection[V_co]:
        """Values under the key now; an empty collection if no object gave any. Raises Unavailable."""

    @abstractmethod
    async def everything(self) -> Mapping[Any, Collection[V_co]]:
        """Values under every key now, as of one moment; held in memory until the index changes. Raises Unavailable."""

    @abstractmethod
    def changes(self, key: K_contra) -> AsyncIterator[Collection[V_co]]:
        """Yield the values under the key: those of now, then those of each change.

        Changes that come faster than they are taken are one: the newest values count.
        """

    @abstractmethod
    async def until(self, key: K_contra, condition: Callable[[Collection[V_co]], bool]) -> Collection[V_co]:
        """Return the values under the key as soon as the condition holds of them."""

    @abstractmethod
    async def contact(self) -> Contact:
        """Tell when the objects behind the index were last heard of. Raises Unavailable."""


class Objects(ABC):
    """Looks up objects of the classes that the view declares: `@op.view(reads=[Quota])`, parameter `objects: Objects`.

    Every lookup is recorded as a dependency of the view, also one that finds nothing: the view wakes when a field that
    the class names changes, and when the object comes or goes. Labels and annotations count if the class has them.
    Lookup is O(1) in the number of objects.
    """

    @abstractmethod
    def get(self, resource: type[R], name: str, namespace: str | None = None) -> R | None:
        """Return the object as the log last showed it, or None where there is none.

        Without a namespace, the one of the view's parent; of no effect for classes with `scope="Cluster"`. Raises
        OperatorError for a class that is not in the view's `reads=`, and for no namespace where the parent has none.
        """
