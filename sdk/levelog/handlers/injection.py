"""What levelog passes to a user's function besides its object, chosen by each parameter's name and type."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, get_args, get_origin

import msgspec
from msgspec import Struct

from levelog.calls.limits import NO_LIMITS, CallLimits
from levelog.handlers import signatures
from levelog.handlers.signatures import type_hints
from levelog.indices import Index, LiveIndex, Objects
from levelog.levels import Level, Levels
from levelog_base.errors import OperatorError
from levelog_base.wire.canonical import canonical, digest


class Given(StrEnum):
    """What can be asked for."""

    LEVEL = "level"
    INDEX = "index"
    LIVE_INDEX = "live index"
    OBJECTS = "objects"
    LEVELS = "levels"
    NOW = "now"
    KEY = "idempotency key"
    RETRY = "retry"
    STARTED = "started"
    WRITTEN = "written"
    CHANCE = "chance"
    LOGGER = "logger"
    SETTINGS = "settings"


_BY_TYPE: Final[Mapping[Any, Given]] = {
    Level: Given.LEVEL,
    Index: Given.INDEX,
    LiveIndex: Given.LIVE_INDEX,
    Objects: Given.OBJECTS,
    Levels: Given.LEVELS,
    logging.Logger: Given.LOGGER,
}
_HOW: Final[Mapping[Given, str]] = {
    Given.LEVEL: "level: Level[…]",
    Given.INDEX: "indices (Index[K, V], by the index's name)",
    Given.LIVE_INDEX: "indices (LiveIndex[K, V], by the index's name)",
    Given.OBJECTS: "objects: Objects (of the classes in reads=)",
    Given.LEVELS: "levels: Levels (how other levels stand)",
    Given.NOW: "now: datetime",
    Given.KEY: "idempotency_key: str",
    Given.RETRY: "retry: int",
    Given.STARTED: "started: datetime",
    Given.WRITTEN: "is_written: bool",
    Given.CHANCE: "chance: random.Random (the same in a replay)",
    Given.LOGGER: "logger: logging.Logger",
    Given.SETTINGS: "settings (annotated with the class of Operator(settings=…))",
}
"""How a parameter asks for it, as error messages say."""


_subject: ContextVar[Mapping[str, str]] = ContextVar("levelog_subject")


def about(**fields: str) -> None:
    """Add fields to what functions log from here on, in this task, thread or greenlet."""
    _subject.set(fields)


def _add_subject(record: logging.LogRecord) -> bool:
    for name, value in _subject.get({}).items():
        record.__dict__.setdefault(name, value)
    return True


class Lender:
    """What an operator lends to all of its functions: its name for their loggers, its settings, limits of their calls.

    Raises OperatorError for settings that have no JSON form, since they could not be part of a fingerprint.
    """

    def __init__(self, operator: str, settings: object | None = None, limits: CallLimits = NO_LIMITS) -> None:
        self.operator = operator
        self.limits = limits
        self.settings = settings
        try:
            self.digest: Final = digest(canonical(settings))
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise OperatorError(
                f"operator {operator!r}: settings of class {type(settings).__name__} have no JSON form ({error}): "
                "use a Struct of numbers, strings, times, lists and mappings"
            ) from error

    def logger(self, function: str) -> logging.Logger:
        """The logger of one function; its lines name the object that the function is called for."""
        logger = logging.getLogger(f"levelog.operator.{self.operator}.{function}")
        if _add_subject not in logger.filters:
            logger.addFilter(_add_subject)
        return logger

    def lends(self, hint: Any) -> bool:
        """Tell whether an annotation asks for the settings."""
        if self.settings is None or not isinstance(hint, type) or hint in (object, Struct):
            return False
        return isinstance(self.settings, hint)


class Injections(Struct, frozen=True):
    """The parameters of one function beyond its object."""

    constants: Mapping[str, Any]
    """Logger and settings, by parameter: the same at each call."""
    given: Mapping[str, Given]
    """What each call gives anew, by parameter."""
    indices: Mapping[str, Any]
    """Annotations of the parameters that ask for indices."""
    fingerprint: str
    """Digest of the settings if the function takes them, else empty."""

    def arguments(self, available: Mapping[Given, Any]) -> dict[str, Any]:
        """The arguments of one call, but for the object and the indices."""
        return {**self.constants, **{name: available[kind] for name, kind in self.given.items()}}


NOTHING: Final = Injections({}, {}, {}, "")


def injections(
    function: Callable[..., Any],
    kind: str,
    names: Sequence[str],
    offered: Collection[Given],
    lender: Lender,
    *,
    first: str = "its object first",
) -> Injections:
    """Decide what each of the parameters `names` is given, out of what this kind of function is offered.

    `first` is what stands before them. Raises OperatorError naming function and parameter, and what it may be instead.
    """
    hints = type_hints(function)
    constants: dict[str, Any] = {}
    given: dict[str, Given] = {}
    indices: dict[str, Any] = {}
    fingerprint = ""
    for name in names:
        hint = hints.get(name)
        match found := _given(name, hint, lender):
            case None:
                raise OperatorError(_refusal(function, kind, name, hint, offered, lender, first))
            case _ if found not in offered:
                raise OperatorError(_refusal(function, kind, name, hint, offered, lender, first))
            case Given.INDEX | Given.LIVE_INDEX:
                indices[name] = hint
            case Given.LOGGER:
                constants[name] = lender.logger(function.__name__)
            case Given.SETTINGS:
                constants[name] = lender.settings
                fingerprint = lender.digest
            case _:
                given[name] = found
    return Injections(constants, given, indices, fingerprint)


def require_defined(where: str, asked: Iterable[str], defined: Collection[str]) -> None:
    """Refuse a parameter that asks for an index which is not there yet. Raises OperatorError."""
    for name in asked:
        if name not in defined:
            known = ", ".join(sorted(each for each in defined if each.isidentifier())) or "none"
            raise OperatorError(
                f"{where}: parameter {name!r} asks for an index that is not defined above it; known are: {known}"
            )


def live_types(where: str, given: Injections, defined: Collection[str]) -> dict[str, Any]:
    """Types of the values of live indices, by parameter. Raises OperatorError for one that is not defined yet."""
    require_defined(where, given.indices, defined)
    return {name: (get_args(hint) or (Any, Any))[1] for name, hint in given.indices.items()}


def shown(hint: object) -> str:
    """An annotation as a message names it."""
    return "not annotated" if hint is None else signatures.shown(hint)


def _given(name: str, hint: Any, lender: Lender) -> Given | None:
    if hint is datetime:
        return {"now": Given.NOW, "started": Given.STARTED}.get(name)
    if hint is str:
        return Given.KEY if name == "idempotency_key" else None
    if hint is int:
        return Given.RETRY if name == "retry" else None
    if hint is bool:
        return Given.WRITTEN if name == "is_written" else None
    if (getattr(hint, "__module__", ""), getattr(hint, "__name__", "")) == ("random", "Random"):  # who asks imports it
        return Given.CHANCE
    found = _BY_TYPE.get(get_origin(hint) or hint) if hint is not None else None
    return found or (Given.SETTINGS if lender.lends(hint) else None)


def _refusal(
    function: Callable[..., Any],
    kind: str,
    name: str,
    hint: Any,
    offered: Collection[Given],
    lender: Lender,
    first: str,
) -> str:
    possible = [
        _HOW[each] for each in Given if each in offered and (each is not Given.SETTINGS or lender.settings is None)
    ]
    if Given.SETTINGS in offered and lender.settings is not None:
        possible.append(f"settings: {type(lender.settings).__name__}")
    *most, last = [first, *possible] if first else possible
    return (
        f"{kind} {function.__name__}: parameter {name!r} is {shown(hint)}; "
        f"a function of this kind may take {', '.join(most)} and {last}"
    )
