"""`@op.on.event`: functions that are called for each record of an object in the log."""

import inspect
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from levelog.effects import EFFECT_TIME
from levelog.errors import OperatorError
from levelog.handlers.fingerprints import fingerprint
from levelog.handlers.injection import Given, Injections, Lender, injections, shown
from levelog.handlers.readers import ObjectReader, object_reader
from levelog.handlers.signatures import parameters, require_function, require_retries, require_time, type_hints, yields
from levelog.resources import ResourceBase, refuse_external
from levelog.selectors import Selector
from levelog.wire.canonical import digest

Origin = Literal["list", "watch"]

OF_RECORDS: Final = (Given.KEY, Given.RETRY, Given.LOGGER, Given.SETTINGS)

_TOLD: Final[Mapping[str, type]] = {"is_deleted": bool, "origin": str, "recorded_at": datetime, "sequence": int}
"""What the record says, by the parameter that asks for it."""


class RecordOptions(Struct, frozen=True, kw_only=True):
    """What the decorator takes."""

    of: type[ResourceBase] | None = None
    selector: Selector = Selector()
    timeout: timedelta = EFFECT_TIME
    retries: int | None = None
    """How often it is tried again after an error, before the record is passed by; None: for ever."""
    backoff: timedelta | None = None
    """Before it is; None: 1 s, doubled each time up to a minute."""


class Recorded(Struct, frozen=True, kw_only=True):
    """What a function may be told of one record."""

    body: bytes
    is_deleted: bool
    origin: Origin
    """How it came into the log: from a list, or by the watch."""
    recorded_at: datetime
    sequence: int


class RecordHandler:
    """A function that is called for each record of the objects of one class, with its options."""

    def __init__(self, function: Callable[..., Any], options: RecordOptions, lender: Lender) -> None:
        """Check a function's signature. Raises OperatorError naming the function and what is wrong."""
        kind = "event handler"
        require_function(function, kind)
        self.name = function.__name__
        self.function = function
        self.operator = lender.operator
        self.options = options
        if yields(function):
            raise OperatorError(
                f"{kind} {self.name}: yields; what has to be written is asked for by a view, or an edge handler"
            )
        require_time(function, kind, options.timeout)
        require_retries(f"{kind} {self.name}", options.retries, options.backoff)
        hints = type_hints(function)
        first, *rest = parameters(function, kind, "object")
        self.reader: ObjectReader = object_reader(
            kind, function, first, hints.get(first), options.selector, of=options.of
        )
        refuse_external(f"{kind} {self.name}: its object {first!r}: ", self.reader.cls)
        self.parameter = first
        self._told = [name for name in rest if name in _TOLD]
        for name in self._told:
            if hints.get(name) is not _TOLD[name]:
                raise OperatorError(
                    f"{kind} {self.name}: parameter {name!r} is {shown(hints.get(name))}: "
                    f"annotate it with {_TOLD[name].__name__}"
                )
        others = [name for name in rest if name not in _TOLD]
        self.given: Injections = injections(function, kind, others, OF_RECORDS, lender)
        self.is_async = inspect.iscoroutinefunction(function)
        self.fingerprint = digest(fingerprint(function), self.reader.fingerprint, self.given.fingerprint)

    @property
    def origin(self) -> Callable[..., Any]:
        """The function that its user wrote."""
        return self.function

    @property
    def source(self) -> str:
        """Its name in the tables, `operator/function`."""
        return f"{self.operator}/{self.name}"

    def arguments(self, recorded: Recorded, given: Mapping[Given, Any]) -> dict[str, Any] | None:
        """The arguments of one call; None: the filters leave the object out.

        Raises msgspec.ValidationError for an object that this code cannot read, and what a filter raises.
        """
        found = self.reader.take(recorded.body)
        if found is None:
            return None
        told = msgspec.structs.asdict(recorded)
        return {self.parameter: found, **{name: told[name] for name in self._told}, **self.given.arguments(given)}
