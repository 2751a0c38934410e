"""The index as code that runs for long sees it: read when it likes, and waited for without polling."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

K_contra = TypeVar("K_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)


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
