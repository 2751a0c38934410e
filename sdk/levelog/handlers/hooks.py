"""`@op.on.startup` and `@op.on.cleanup`: functions that run before an operator's work begins and after it ends."""

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, TypeVar, overload

from msgspec import Struct

from levelog.handlers.injection import Injections, Lender, injections, live_types
from levelog.handlers.signatures import parameters, require_function, require_time, yields
from levelog_base.errors import OperatorError

HookFunction = TypeVar("HookFunction", bound=Callable[..., Any])
When: TypeAlias = Literal["startup", "cleanup"]

STARTUP_TIME: Final = timedelta(seconds=60)
CLEANUP_TIME: Final = timedelta(seconds=10)
"""Default time limits: Kubernetes kills a pod 30 s after it asked it to end."""


class Hook(Struct, frozen=True, kw_only=True):
    """One registered function."""

    when: When
    operator: str
    function: Callable[..., Any]
    given: Injections
    indices: Mapping[str, Any]
    """Types of values of the indices that it is given live, by their names."""
    timeout: timedelta

    @property
    def is_async(self) -> bool:
        """Whether it runs in the event loop; else it runs in a thread."""
        return inspect.iscoroutinefunction(self.function)

    def __str__(self) -> str:
        return f"{self.when} hook {self.function.__name__} of operator {self.operator}"


class Hooks:
    """Registers hooks of an operator. They may take `logger`, `settings`, and `LiveIndex[K, V]` by an index's name.

    Plain functions run in a thread, async ones in the event loop.
    """

    def __init__(self, lender: Lender, indices: Mapping[str, object]) -> None:
        self._lender = lender
        self._indices = indices
        self.registered: list[Hook] = []
        """Hooks in the order of definition."""

    @overload
    def startup(self, function: HookFunction) -> HookFunction: ...

    @overload
    def startup(self, *, timeout: timedelta = STARTUP_TIME) -> Callable[[HookFunction], HookFunction]: ...

    def startup(
        self, function: HookFunction | None = None, *, timeout: timedelta = STARTUP_TIME
    ) -> HookFunction | Callable[[HookFunction], HookFunction]:
        """Register a function that runs in each processor before anything is folded, decided or written.

        Hooks run one after the other, in the order of definition. One that raises, or takes longer than `timeout`, ends
        the process. Tasks that a hook starts are cancelled when the process ends.
        """
        return self._decorate("startup", function, timeout)

    @overload
    def cleanup(self, function: HookFunction) -> HookFunction: ...

    @overload
    def cleanup(self, *, timeout: timedelta = CLEANUP_TIME) -> Callable[[HookFunction], HookFunction]: ...

    def cleanup(
        self, function: HookFunction | None = None, *, timeout: timedelta = CLEANUP_TIME
    ) -> HookFunction | Callable[[HookFunction], HookFunction]:
        """Register a function that runs when a processor ends, even after a failure, unless the process is killed.

        Hooks run one after the other, in the order of definition, once the tasks of start-up hooks have ended. If one
        raises, or takes longer than `timeout`, levelog logs that and runs the others.
        """
        return self._decorate("cleanup", function, timeout)

    def _decorate(
        self, when: When, function: HookFunction | None, timeout: timedelta
    ) -> HookFunction | Callable[[HookFunction], HookFunction]:
        def register(function: HookFunction) -> HookFunction:
            self.registered.append(self._inspect(when, function, timeout))
            return function

        return register if function is None else register(function)

    def _inspect(self, when: When, function: Callable[..., Any], timeout: timedelta) -> Hook:
        kind = f"{when} hook"
        require_function(function, kind)
        name = function.__name__
        if yields(function):
            raise OperatorError(f"{kind} {name}: yields; a hook runs to its end, and a cleanup hook undoes it")
        require_time(f"{kind} {name}", "timeout", timeout)
        given = injections(function, kind, parameters(function, kind), self._lender, first="")
        return Hook(
            when=when,
            operator=self._lender.operator,
            function=function,
            given=given,
            indices=live_types(f"{kind} {name}", given, self._indices),
            timeout=timeout,
        )
