"""How functions look things up: indices, live indices, and other objects."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from levelog.resources import ResourceBase

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
K_contra = TypeVar("K_contra", contravariant=True)
R = TypeVar("R", bound=ResourceBase)


class Index(Mapping[K, Collection[V_co]]):
    """A read-only mapping from keys to the values that index functions yielded under them.

    Every read is recorded as a dependency of the view, so that a change of just that key wakes it. Values under a key
    are in the order of the objects' names. A lookup is O(1) in the number of objects.
    """

    @abstractmethod
    def __getitem__(self, key: K) -> Collection[V_co]:
        """Values under the key; an empty collection if there are none, which counts as a read too."""

    @property
    @abstractmethod
    def is_stale(self) -> bool:
        """Whether history was missed and the objects behind the index are being listed again.

        If so, its values are older than usual, by an unknown time. This counts as a read: the view wakes when it
        changes.
        """

    @abstractmethod
    def __iter__(self) -> Iterator[K]:
        """Keys in canonical order; the view then depends on every key of the index."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of keys; the view then depends on every key of the index."""

    @abstractmethod
    def __contains__(self, key: object) -> bool:
        """Tell whether there is a value under the key."""


class Contact(NamedTuple):
    """How far you can trust the watch behind an index."""

    is_stale: bool
    """A list of the resource is not complete: the first one, or one after history was missed."""
    last_contact: datetime | None
    """When the last list or bookmark came, about once a minute on a healthy watch; None: never."""


class LiveIndex(ABC, Generic[K_contra, V_co]):
    """An index for start-up hooks, the tasks that they start, and daemons: `images: LiveIndex[str, str]`.

    The parameter has the name of the index. Values are those that the log has shown so far, in the order of the
    objects' names. Waiting does not poll. If the database is away, it continues to wait, and reads again once the
    database is back.
    """

    @abstractmethod
    async def get(self, key: K_contra) -> Collection[V_co]:
        """Values under the key now; an empty collection if there are none. Raises Unavailable."""

    @abstractmethod
    async def everything(self) -> Mapping[Any, Collection[V_co]]:
        """Values under every key, in one snapshot; kept in memory until the index changes. Raises Unavailable."""

    @abstractmethod
    def changes(self, key: K_contra) -> AsyncIterator[Collection[V_co]]:
        """Yield the values under the key now, then after each change.

        If changes come faster than you take them, you get only the newest values.
        """

    @abstractmethod
    async def until(self, key: K_contra, condition: Callable[[Collection[V_co]], bool]) -> Collection[V_co]:
        """Return the values under the key as soon as they meet the condition."""

    @abstractmethod
    async def contact(self) -> Contact:
        """Tell how old the last contact with the objects behind the index is. Raises Unavailable."""


GiveIndex: TypeAlias = Callable[[str, Any], LiveIndex[Any, Any]]
"""What gives the live index `operator/name`, with values of a type."""


class Objects(ABC):
    """Looks up objects of the classes in `@op.view(reads=[Quota])`, as the parameter `objects: Objects`.

    Every lookup is recorded as a dependency of the view, even if it finds nothing: the view wakes when a field of the
    class changes, and when the object comes or goes. Labels and annotations count if the class has them. A lookup is
    O(1) in the number of objects.
    """

    @abstractmethod
    def get(self, resource: type[R], name: str, namespace: str | None = None) -> R | None:
        """Return the object as the log last showed it, or None.

        The default namespace is that of the view's parent; classes with `scope="Cluster"` ignore it. Raises
        OperatorError if the class is not in the view's `reads=`, or if neither the call nor the parent has a namespace.
        """
