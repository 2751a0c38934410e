"""`@op.on.event`, and what it shares with all handlers whose calls leave no records."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar

from levelog.handlers.called import CalledHandler, CallOptions
from levelog.handlers.fingerprints import fingerprint
from levelog.handlers.injection import Given, Lender
from levelog.wire.canonical import digest


class UnrecordedHandler(CalledHandler, ABC):
    """A function whose calls leave no records."""

    instead = "what has to be written is asked for by a view, or an edge handler"

    def __init__(self, function: Callable[..., Any], options: CallOptions, lender: Lender) -> None:
        """Check a function's signature. Raises OperatorError naming the function and what is wrong."""
        super().__init__(function, options, lender)
        self.fingerprint = digest(fingerprint(function), self.reader.fingerprint, self.given.fingerprint)

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


class RecordHandler(UnrecordedHandler):
    """A function that is called for each record of the objects of one class."""

    kind = "event handler"
    told: ClassVar[Mapping[str, Any]] = {
        "is_deleted": bool,
        "origin": str,
        "recorded_at": datetime,
        "sequence": int,
    }

    def said(self, position: int) -> str:
        """A record by its sequence."""
        return f"record {position}"
