"""Filters on labels and annotations: literals, presence, and functions of the object."""

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from functools import cached_property
from typing import Any, Final, TypeAlias, TypedDict

from msgspec import Struct

from levelog_base.errors import OperatorError


class Presence(Enum):
    """Tells of a label only whether it is there."""

    PRESENT = "present"
    ABSENT = "absent"


PRESENT: Final = Presence.PRESENT
"""A filter's value: the label or annotation is there, with whatever value."""
ABSENT: Final = Presence.ABSENT
"""A filter's value: the label or annotation is not there."""

Value: TypeAlias = str | Presence | Callable[[str | None], bool]
"""A literal, PRESENT, ABSENT, or a function of the value (None where there is none)."""


class FilterKeywords(TypedDict, total=False):
    """Filters of a function that takes objects: on labels, on annotations, and a function of the object."""

    labels: Mapping[str, Value] | None
    annotations: Mapping[str, Value] | None
    when: Callable[[Any], object] | None


class Selector(Struct, frozen=True, kw_only=True, dict=True):
    """All conditions have to hold; no condition selects everything."""

    labels: dict[str, Value] = {}
    annotations: dict[str, Value] = {}
    when: Callable[[Any], object] | None = None
    """Asked last, with the object as the handler takes it; true lets it through."""

    def __post_init__(self) -> None:
        """Raises OperatorError for what no label could be compared with."""
        for option in ("labels", "annotations"):
            conditions: object = getattr(self, option)
            if not isinstance(conditions, Mapping):
                raise OperatorError(f"{option}={conditions!r} is not a mapping of names to values")
            for name, wanted in conditions.items():  # pyright: ignore[reportUnknownVariableType]
                if not isinstance(name, str) or not (isinstance(wanted, str | Presence) or callable(wanted)):  # pyright: ignore[reportUnknownArgumentType]
                    raise OperatorError(f"{option}: {name}={wanted!r} is no text, PRESENT, ABSENT or function")
        if self.when is not None and not callable(self.when):  # pyright: ignore[reportUnnecessaryComparison]
            raise OperatorError(f"when={self.when!r} is not a function of the object")

    @cached_property
    def looks_at_metadata(self) -> bool:
        """Whether labels or annotations are asked for."""
        return bool(self.labels or self.annotations)

    @cached_property
    def has_functions(self) -> bool:
        """Whether functions of the user are asked."""
        conditions = (*self.labels.values(), *self.annotations.values())
        return self.when is not None or any(not isinstance(wanted, str | Presence) for wanted in conditions)

    def matches(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
        """Tell whether an object with these labels and annotations is selected."""
        return _all_hold(self.labels, labels) and _all_hold(self.annotations, annotations)


def taken_from(where: str, said: Mapping[str, Any], others: Iterable[str]) -> tuple[Selector, dict[str, Any]]:
    """The filters among the options of a decorator, and the other options that it takes.

    Raises OperatorError for one that it does not take.
    """
    filters = Selector.__struct_fields__
    known = {*filters, *others}
    if unknown := min(said.keys() - known, default=""):
        meant = alike(unknown, known)
        mend = f"did you mean {meant}=?" if meant else f"there are {', '.join(sorted(known))}"
        raise OperatorError(f"{where}: takes no option {unknown!r}; {mend}")
    given = {name: said[name] for name in filters if said.get(name) is not None}
    return Selector(**given), {name: value for name, value in said.items() if name not in filters}


def alike(name: str, known: Collection[str]) -> str:
    """The one of the known names that is most like a name; empty if none is."""
    from difflib import get_close_matches  # noqa: PLC0415 - a right name does not load it

    return next(iter(get_close_matches(name, known, n=1)), "")


def _all_hold(conditions: Mapping[str, Value], actual: Mapping[str, str]) -> bool:
    return all(holds(wanted, actual.get(name)) for name, wanted in conditions.items())


def holds(wanted: Any, value: Any, /, **told: Any) -> bool:
    """Tell whether a value, None where there is none, is as wanted: a literal, PRESENT, ABSENT or a function.

    The function is `told` more of its object.
    """
    match wanted:
        case Presence.PRESENT:
            return value is not None
        case Presence.ABSENT:
            return value is None
        case _ if callable(wanted):
            return bool(wanted(value, **told))
        case _:
            return bool(value == wanted)
