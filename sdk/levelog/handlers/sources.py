"""`@op.source`: functions that list an external system, checked when the file is loaded."""

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar

from levelog.errors import OperatorError
from levelog.handlers.injection import Given, Injections, Lender, injections
from levelog.handlers.signatures import parameters, require_time, type_hints
from levelog.resources import External, Gone, ResourceType, Traced

SOURCE_TIME: Final = timedelta(seconds=30)
"""Default time limit of one poll."""

OF_SOURCES: Final = (Given.LOGGER, Given.SETTINGS)

Records: TypeAlias = Iterable[External | Traced]
PolledF = TypeVar("PolledF", bound=Callable[..., Records | Awaitable[Records] | AsyncIterable[External | Traced]])
"""Gives the whole set at each call."""
WatchingF = TypeVar("WatchingF", bound=Callable[..., AsyncIterable[Records | External | Traced | Gone]])
"""Yields whole sets and single changes, for ever."""


class SourceHandler:
    """A source function: the class of its records, its interval, and its arguments."""

    def __init__(
        self,
        function: Callable[..., Any],
        operator: str,
        cls: type[External],
        given: Injections,
        *,
        every: timedelta | None,
        timeout: timedelta | None,
    ) -> None:
        self.name = function.__name__
        self.function = function
        self.operator = operator
        self.cls = cls
        self.resource: ResourceType = cls.resource_type
        self.given = given
        self.every = every
        """Time between the end of a poll and the beginning of the next; None for a generator that waits by itself."""
        self.timeout = timeout
        """Limit of one poll, or of the time between two things that a generator yields; None: it may take for ever."""

    def __str__(self) -> str:
        return f"source {self.operator}/{self.name}"

    def begin(self) -> Any:
        """Call the function with its arguments; the result is a set, an awaitable or an async generator."""
        return self.function(**self.given.arguments({}))

    @classmethod
    def inspect(
        cls,
        function: Callable[..., Any],
        record: object,
        lender: Lender,
        *,
        every: timedelta | None,
        timeout: timedelta | None,
    ) -> "SourceHandler":
        """Check class, signature and options of a source. Raises OperatorError naming function and parameter."""
        name = function.__name__
        if not isinstance(record, type) or not issubclass(record, External) or not hasattr(record, "resource_type"):
            shown = getattr(record, "__name__", repr(record))
            raise OperatorError(
                f"source {name}: {shown} is not a class of external records: "
                'class Branch(External, plural="branches"), and @op.source(Branch, …)'
            )
        if every is None:
            if not inspect.isasyncgenfunction(function):
                raise OperatorError(
                    f"source {name}: say how often it is asked, every=timedelta(seconds=30); "
                    "only an async generator, which waits for changes by itself, goes without"
                )
        elif not isinstance(every, timedelta) or every <= timedelta(0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OperatorError(f"source {name}: every={every!r} is not a time above 0: timedelta(seconds=30)")
        if timeout is None and every is not None:
            timeout = SOURCE_TIME
        if timeout is not None:
            require_time(function, "source", timeout)
        type_hints(function)
        given = injections(function, "source", parameters(function, "source"), OF_SOURCES, lender, first="")
        return cls(function, lender.operator, record, given, every=every, timeout=timeout)
