"""Handlers whose calls leave no records, which the processor of a partition makes: what all kinds share."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

from levelog.errors import OperatorError
from levelog.handlers.edgehandlers import CallOptions, require_call_options
from levelog.handlers.fingerprints import fingerprint
from levelog.handlers.injection import Given, Injections, Lender, injections, shown
from levelog.handlers.readers import ObjectReader, object_reader
from levelog.handlers.signatures import parameters, require_function, require_time, type_hints, yields
from levelog.resources import refuse_external
from levelog.wire.canonical import digest


class UnrecordedHandler(ABC):
    """A function that is called for the objects of one class, with its options."""

    kind: ClassVar[str]
    """As messages name it."""
    told: ClassVar[Mapping[str, type]] = {}
    """What a call says besides, by the parameter that asks for it."""
    offered: ClassVar[tuple[Given, ...]]

    def __init__(self, function: Callable[..., Any], options: CallOptions, lender: Lender) -> None:
        """Check a function's signature. Raises OperatorError naming the function and what is wrong."""
        kind = self.kind
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
        require_call_options(f"{kind} {self.name}", options)
        hints = type_hints(function)
        first, *rest = parameters(function, kind, "object")
        self.reader: ObjectReader = object_reader(
            kind, function, first, hints.get(first), options.selector, of=options.of
        )
        refuse_external(f"{kind} {self.name}: its object {first!r}: ", self.reader.cls)
        self.parameter = first
        self._told = [name for name in rest if name in self.told]
        for name in self._told:
            if hints.get(name) is not self.told[name]:
                raise OperatorError(
                    f"{kind} {self.name}: parameter {name!r} is {shown(hints.get(name))}: "
                    f"annotate it with {self.told[name].__name__}"
                )
        others = [name for name in rest if name not in self.told]
        self.given: Injections = injections(function, kind, others, self.offered, lender)
        self.is_async = inspect.iscoroutinefunction(function)
        self.fingerprint = digest(fingerprint(function), self.reader.fingerprint, self.given.fingerprint)

    @property
    def origin(self) -> Callable[..., Any]:
        """The function that its user wrote."""
        return self.function

    @cached_property
    def source(self) -> str:
        """Its name in the tables, `operator/function`."""
        return f"{self.operator}/{self.name}"

    @abstractmethod
    def said(self, position: int) -> str:
        """What is called for at a position, as messages name it."""

    def called_with(self, body: bytes, told: Mapping[str, Any], given: Mapping[Given, Any]) -> dict[str, Any] | None:
        """The arguments of one call; None: the filters leave the object out.

        Raises msgspec.ValidationError for an object that this code cannot read, and what a filter raises.
        """
        found = self.reader.take(body)
        if found is None:
            return None
        return {self.parameter: found, **{name: told[name] for name in self._told}, **self.given.arguments(given)}
