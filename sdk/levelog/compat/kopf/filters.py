"""Kopf's filters: callbacks get the keyword arguments of handlers; `all_`, `any_`, `not_` and `none_`."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from msgspec import UNSET, Struct

from levelog.edges import value_or_none
from levelog.selectors import holds

_OF_EDGES: Final = {"old", "new", "diff", "reason", "retry", "started", "runtime", "patch", "event", "type"}
"""What a filter may ask for that only a call knows."""


class Filters(Struct, frozen=True, kw_only=True):
    """What a decorator filters by, beside the resource; None and UNSET filter nothing."""

    labels: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] | None = None
    when: Callable[..., Any] | None = None
    field: str = ""
    """JSON pointer of a field that objects have to have, with the value; empty: of none."""
    value: Any = UNSET
    old: Any = UNSET
    new: Any = UNSET

    @property
    def is_of_edges(self) -> bool:
        """Whether `when` asks for what only a call knows, so that an edge is left out and not an object."""
        return self.when is not None and not _OF_EDGES.isdisjoint(_names(self.when))

    def take(self, kwargs: Mapping[str, Any]) -> bool:
        """Tell whether labels, annotations and, unless it is of edges, `when` take an object."""
        return (
            all(
                holds(wanted, kwargs[where].get(name), **kwargs)
                for where, conditions in (("labels", self.labels), ("annotations", self.annotations))
                for name, wanted in (conditions or {}).items()
            )
            and (not self.field or self._has_field(kwargs))
            and (self.when is None or self.is_of_edges or bool(self.when(**kwargs)))
        )

    def take_change(self, old: Any, new: Any, kwargs: Mapping[str, Any]) -> bool:
        """Tell whether `old` and `new` take the values before and after a change."""
        sides = ((self.old, old), (self.new, new))
        return all(wanted is UNSET or holds(wanted, value, **kwargs) for wanted, value in sides)

    @property
    def takes_all(self) -> bool:
        """Whether no object is left out."""
        return not self.labels and not self.annotations and not self.field and (self.when is None or self.is_of_edges)

    def _has_field(self, kwargs: Mapping[str, Any]) -> bool:
        found = value_or_none(kwargs["body"], self.field)
        return found is not None if self.value is UNSET else holds(self.value, found, **kwargs)


def all_(callbacks: Collection[Callable[..., Any]]) -> Callable[..., bool]:
    """A filter that holds where all of some do."""
    return _asking(lambda *args, **kwargs: all(each(*args, **kwargs) for each in callbacks), callbacks)


def any_(callbacks: Collection[Callable[..., Any]]) -> Callable[..., bool]:
    """A filter that holds where one of some does."""
    return _asking(lambda *args, **kwargs: any(each(*args, **kwargs) for each in callbacks), callbacks)


def none_(callbacks: Collection[Callable[..., Any]]) -> Callable[..., bool]:
    """A filter that holds where none of some does."""
    return _asking(lambda *args, **kwargs: not any(each(*args, **kwargs) for each in callbacks), callbacks)


def not_(callback: Callable[..., Any]) -> Callable[..., bool]:
    """A filter that holds where another does not."""
    return _asking(lambda *args, **kwargs: not callback(*args, **kwargs), [callback])


def _asking(made: Callable[..., bool], callbacks: Collection[Callable[..., Any]]) -> Callable[..., bool]:
    """Have a filter ask for what those ask for that it is made of."""
    names = sorted({*(name for each in callbacks for name in _names(each)), "kwargs"} - {"args"})
    kinds = {"kwargs": inspect.Parameter.VAR_KEYWORD}
    parameters = [inspect.Parameter(each, kinds.get(each, inspect.Parameter.KEYWORD_ONLY)) for each in names]
    there: Any = made
    there.__signature__ = inspect.Signature(sorted(parameters, key=lambda each: each.kind))
    return made


def _names(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)
