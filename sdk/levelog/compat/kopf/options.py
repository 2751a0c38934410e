"""The options of a Kopf file's decorators, checked when the file is loaded."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from levelog.compat.kopf.filters import Filters
from levelog.compat.kopf.handlererrors import ErrorsMode, TryLimits
from levelog.compat.kopf.kopftargets import KindChoice, choice, chosen, target
from levelog.edges import pointer_of
from levelog.kinds import ServedKind
from levelog.resources import Resource, ResourceBase
from levelog_base.errors import OperatorError
from levelog_base.wire.canonical import pointer_to

BACKOFF: Final = timedelta(minutes=1)
"""After an error that is not TemporaryError. Origin: Kopf's documentation."""
SELECTORS: Final = ("group", "version", "kind", "plural", "singular", "shortcut", "category")
FILTERS: Final = ("labels", "annotations", "when", "value", "old", "new")
LIMITS: Final = ("errors", "timeout", "retries")
COMMON: Final = ("id", "param", "backoff", "field")


class Declaration(Struct, frozen=True, kw_only=True):
    """A function of a Kopf file with what all decorators say of one."""

    function: Callable[..., Any]
    cls: type[ResourceBase]
    choice: KindChoice | None = None
    """The kinds that it is for, each with a class of its own in place of `cls`; None: one, which the file names."""
    served: ServedKind | None = None
    """The kind of `cls`, if a cluster told it."""
    id: str
    limits: TryLimits
    filters: Filters
    backoff: timedelta
    param: Any

    def of(self, kind: ServedKind) -> "Declaration":
        """The same for one of the kinds that it is for."""
        return replace(self, cls=chosen(kind), choice=None, served=kind)


def declared_as(
    where: str,
    function: Callable[..., Any],
    selectors: tuple[Any, ...],
    options: Mapping[str, Any],
    others: Sequence[str],
    *,
    is_of_field: bool,
) -> Declaration:
    """What a decorator says of a function; `others` are options of its own.

    With `is_of_field` an object fits that has the field. Raises OperatorError for what cannot be.
    """
    require_known(where, options, (*SELECTORS, *FILTERS, *LIMITS, *COMMON, *others))
    named = {name: options.get(name) for name in SELECTORS}
    several = choice(where, selectors, named)
    return Declaration(
        function=function,
        cls=target(where, selectors, named) if several is None else Resource,
        choice=several,
        id=str(options.get("id") or getattr(function, "__name__", "handler")),
        limits=limits_of(where, options),
        filters=filters_of(where, options, field=pointer(where, options.get("field")) if is_of_field else ""),
        backoff=backoff_of(where, options),
        param=options.get("param"),
    )


def require_known(where: str, options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse options that a decorator does not have. Raises OperatorError."""
    if "registry" in options:
        raise OperatorError(f"{where}: registry= is of no use here: the handlers of a file are one operator")
    if unknown := options.keys() - {*known}:
        raise OperatorError(f"{where}: takes no option {min(unknown)!r}")


def filters_of(where: str, options: Mapping[str, Any], *, field: str = "") -> Filters:
    """The filters of a decorator. Raises OperatorError for values of a field where none is named."""
    given = {name: options[name] for name in FILTERS if options.get(name) is not None}
    if not options.get("field") and (odd := {"value", "old", "new"} & given.keys()):
        raise OperatorError(f"{where}: {min(odd)}= filters on the value of a field: say which, field='spec.replicas'")
    return Filters(field=field, **{name: value for name, value in given.items() if value is not UNSET})


def limits_of(where: str, options: Mapping[str, Any]) -> TryLimits:
    """Errors mode, time limit and retries of a decorator. Raises OperatorError for those that are none."""
    errors = options.get("errors") or ErrorsMode.TEMPORARY
    if not isinstance(errors, ErrorsMode):
        raise OperatorError(f"{where}: errors={errors!r} is not one of kopf.ErrorsMode")
    retries = options.get("retries")
    if retries is not None and (type(retries) is not int or retries < 1):
        raise OperatorError(f"{where}: retries={retries!r} is not a number of calls, 1 or more")
    return TryLimits(errors=errors, timeout=seconds_of(where, "timeout", options.get("timeout")), retries=retries)


def backoff_of(where: str, options: Mapping[str, Any]) -> timedelta:
    """How long a decorator waits after an error. Raises OperatorError for what is no time."""
    return seconds_of(where, "backoff", options.get("backoff")) or BACKOFF


def seconds_of(where: str, option: str, given: Any) -> timedelta | None:
    """A time that is given in seconds. Raises OperatorError for what is none."""
    if given is None:
        return None
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not 0 < given < timedelta.max.total_seconds():
        raise OperatorError(f"{where}: {option}={given!r} is not a number of seconds above 0")
    return timedelta(seconds=given)


def delay_of(where: str, given: Any) -> timedelta:
    """An initial delay; none is no time. Raises OperatorError for a function, and what else is no number."""
    if callable(given):
        raise OperatorError(f"{where}: initial_delay={given!r} is a function, which is not called here: give seconds")
    return seconds_of(where, "initial_delay", given or None) or timedelta(0)


def pointer(where: str, field: Any) -> str:
    """A field as a JSON pointer; empty: none. Raises OperatorError for what names no field."""
    if not field:
        return ""
    if isinstance(field, str):
        return pointer_of(field)
    if isinstance(field, Sequence) and all(isinstance(each, str) for each in field):  # pyright: ignore[reportUnknownVariableType]
        return pointer_to(field)  # pyright: ignore[reportUnknownArgumentType]
    raise OperatorError(f"{where}: field={field!r} is neither 'spec.replicas' nor ('spec', 'replicas')")
