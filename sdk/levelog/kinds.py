"""Kinds that an API server serves, and handlers that wait to be told which those are."""

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from levelog.operator import Operator


class ServedKind(Struct, frozen=True, kw_only=True):
    """A resource as the API server describes it, or, if nobody has asked, as a file and the API's conventions do."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    namespaced: bool | None
    """None: nobody has said it."""
    shortcuts: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    subresources: frozenset[str] = frozenset({"status"})
    verbs: frozenset[str] = frozenset()
    preferred: bool = True

    @property
    def name(self) -> str:
        """`webs.example.com`."""
        return f"{self.plural}.{self.group}".rstrip(".")

    @property
    def api_version(self) -> str:
        """`example.com/v1`."""
        return f"{self.group}/{self.version}".lstrip("/")


class OpenSelector(Struct, frozen=True, kw_only=True):
    """Stands for a handler of each kind that it `takes`; it is an entry of `op.open_selectors`."""

    shown: str
    """For messages: `log_it is for EVERYTHING`."""
    takes: Callable[[ServedKind], bool]
    register: Callable[[ServedKind], None]
    """Make the handler of one kind."""
    instead: str
    """For messages: what to write where nobody can ask a cluster."""


def expand(operators: Iterable["Operator"], kinds: Collection[ServedKind]) -> dict[str, int]:
    """Make the handlers of all open selectors, and close these; returns how many kinds each has, by `shown`.

    A kind that the operator names elsewhere is taken in the version that it has there. Raises OperatorError for
    handlers that cannot be made.
    """
    counts: dict[str, int] = {}
    for operator in operators:
        versions = {(resource.group, resource.plural): resource.version for resource in operator.reads()}
        while operator.open_selectors:
            selector = operator.open_selectors.pop(0)
            found = [kind for kind in kinds if selector.takes(kind)]
            for kind in found:
                selector.register(replace(kind, version=versions.get((kind.group, kind.plural), kind.version)))
            counts[selector.shown] = len(found)
    return counts
