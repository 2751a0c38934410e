"""What levelog passes to a user's function besides its object, chosen by each parameter's name and type."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Struct

from levelog.calls.limits import NO_LIMITS, CallLimits
from levelog.handlers import signatures
from levelog.handlers.signatures import is_subclass, type_hints
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


class _Form(NamedTuple):
    """How a parameter asks for something."""

    shown: str
    """As error messages say it."""
    type: Any = None
    name: str = ""
    """Empty: whatever its name is."""


_FORMS: Final[Mapping[Given, _Form]] = {
    Given.LEVEL: _Form("level: Level[…]", Level),
    Given.INDEX: _Form("indices (Index[K, V], by the index's name)", Index),
    Given.LIVE_INDEX: _Form("indices (LiveIndex[K, V], by the index's name)", LiveIndex),
    Given.OBJECTS: _Form("objects: Objects (of the classes in reads=)", Objects),
    Given.LEVELS: _Form("levels: Levels (how other levels stand)", Levels),
    Given.NOW: _Form("now: datetime", datetime, "now"),
    Given.KEY: _Form("idempotency_key: str", str, "idempotency_key"),
    Given.RETRY: _Form("retry: int", int, "retry"),
    Given.STARTED: _Form("started: datetime", datetime, "started"),
    Given.WRITTEN: _Form("is_written: bool", bool, "is_written"),
    Given.CHANCE: _Form("chance: random.Random (the same in a replay)"),  # who asks imports it
    Given.LOGGER: _Form("logger: logging.Logger", logging.Logger),
    Given.SETTINGS: _Form("settings (annotated with the class of Operator(settings=…))"),
}


_SAID: Final = (Given.LOGGER, Given.SETTINGS)
_OF_CALLS: Final = (Given.KEY, Given.RETRY, Given.STARTED, *_SAID)
OFFERED: Final[Mapping[str, Collection[Given]]] = {
    "index": _SAID,
    "view": (Given.INDEX, Given.OBJECTS, Given.LEVELS, Given.NOW, *_SAID),
    "reconcile function": (Given.LEVEL, Given.NOW, Given.CHANCE, *_SAID),
    "effect": _OF_CALLS,
    "handler": _OF_CALLS,
    "event handler": _OF_CALLS,
    "timer": _OF_CALLS,
    "daemon": (Given.LIVE_INDEX, *_OF_CALLS),
    "source": _SAID,
    "startup hook": (Given.LIVE_INDEX, *_SAID),
    "cleanup hook": (Given.LIVE_INDEX, *_SAID),
}
"""What a function of each kind may take, besides what it is called for."""


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
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
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
        return is_subclass(type(self.settings), hint)


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
    lender: Lender,
    *,
    first: str = "its object first",
    also: Collection[Given] = (),
) -> Injections:
    """Decide what each of the parameters `names` is given, out of what this kind of function is offered, and `also`.

    `first` is what stands before them. Raises OperatorError naming function and parameter, and what it may be instead.
    """
    hints, offered = type_hints(function), {*OFFERED[kind], *also}
    constants: dict[str, Any] = {}
    given: dict[str, Given] = {}
    indices: dict[str, Any] = {}
    fingerprint = ""
    for name in names:
        hint = hints.get(name)
        found = _given(name, hint, lender)
        if found is None or found not in offered:
            raise OperatorError(_refusal(function, kind, name, hint, offered, lender, first))
        match found:
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
    if (getattr(hint, "__module__", ""), getattr(hint, "__name__", "")) == ("random", "Random"):
        return Given.CHANCE
    asked = get_origin(hint) or hint
    for given, form in _FORMS.items():
        if form.type is not None and asked is form.type and form.name in ("", name):
            return given
    return Given.SETTINGS if lender.lends(hint) else None


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
        _FORMS[each].shown
        for each in Given
        if each in offered and (each is not Given.SETTINGS or lender.settings is None)
    ]
    if Given.SETTINGS in offered and lender.settings is not None:
        possible.append(f"settings: {type(lender.settings).__name__}")
    *most, last = [first, *possible] if first else possible
    return (
        f"{kind} {function.__name__}: parameter {name!r} is {shown(hint)}; "
        f"a function of this kind may take {', '.join(most)} and {last}"
    )
