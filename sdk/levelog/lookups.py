"""Other objects as a view sees them, by class and name."""

from abc import ABC, abstractmethod
from typing import TypeVar

from levelog.resources import ResourceBase

R = TypeVar("R", bound=ResourceBase)


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
