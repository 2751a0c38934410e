"""`@op.source`: functions that list an external system, checked when the file is loaded."""

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar

from levelog.handlers.injection import Lender, injections
from levelog.handlers.signatures import parameters, require_time
from levelog.resources import External, Gone, ResourceType, Traced
from levelog_base.errors import OperatorError

SOURCE_TIME: Final = timedelta(seconds=30)
"""Default time limit of one poll."""

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
        cls: type[External],
        lender: Lender,
        *,
        every: timedelta | None,
        timeout: timedelta | None,
    ) -> None:
        """Check class, signature and options of a source. Raises OperatorError naming function and parameter."""
        self.name = function.__name__
        self.function = function
        self.operator = lender.operator
        if not isinstance(cls, type) or not issubclass(cls, External) or not hasattr(cls, "resource_type"):  # pyright: ignore[reportUnnecessaryIsInstance]
            shown = getattr(cls, "__name__", repr(cls))
            raise OperatorError(
                f"source {self.name}: {shown} is not a class of external records: "
                'class Branch(External, plural="branches"), and @op.source(Branch, …)'
            )
        self.cls = cls
        self.resource: ResourceType = cls.resource_type
        if every is not None:
            require_time(f"source {self.name}", "every", every)
        elif not inspect.isasyncgenfunction(function):
            raise OperatorError(
                f"source {self.name}: say how often it is asked, every=timedelta(seconds=30); "
                "only an async generator, which waits for changes by itself, goes without"
            )
        self.every = every
        """Time between the end of a poll and the beginning of the next; None for a generator that waits by itself."""
        self.timeout = SOURCE_TIME if timeout is None and every is not None else timeout
        """Limit of one poll, or of the time between two things that a generator yields; None: it may take for ever."""
        if self.timeout is not None:
            require_time(f"source {self.name}", "timeout", self.timeout)
        self.given = injections(function, "source", parameters(function, "source"), lender, first="")

    def __str__(self) -> str:
        return f"source {self.operator}/{self.name}"

    def begin(self) -> Any:
        """Call the function with its arguments; the result is a set, an awaitable or an async generator."""
        return self.function(**self.given.arguments({}))
