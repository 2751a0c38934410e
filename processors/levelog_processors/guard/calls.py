"""Calls pure functions: with a time limit, and without I/O."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

from levelog.calls.audit import Guard, guard, unguard, unguarded
from levelog.calls.faults import HandlerFault
from levelog.handlers.views import VIEW_TIME
from levelog_processors.guard.watchdog import SHOTS, Allowance, TimeIsOver, watchdog
from levelog_processors.program import BoundView

T = TypeVar("T")


@contextmanager
def suspended() -> Generator[None]:
    """Stop the time of whatever runs in this thread, and allow it I/O, while somebody looks at it in a debugger."""
    with watchdog().resting(), unguarded():
        yield


class TookTooLong(HandlerFault):
    """A function exceeded its time limit."""


class FunctionGuard:
    """One call of a view or an index function.

    `pause` and `resume` stand around what levelog does for the function while it waits, in the same thread.
    """

    def __init__(self, name: str, limit: timedelta) -> None:
        self._limit = limit
        self._allowance = Allowance(name, limit)
        self._guard = Guard(caller=__name__)
        self._watchdog = watchdog()

    def run(self, function: Callable[[], T]) -> T:
        """Call the function; raises what it raises.

        Raises TookTooLong if it exceeds its time limit, and HandlerFault if it does I/O, even if it caught the refusal.
        """
        try:
            result = self._run(function, SHOTS)
        except TimeIsOver as expired:
            raise TookTooLong(f"took longer than {self._limit.total_seconds():g} s and was ended") from expired
        if self._guard.offence is not None:
            raise self._guard.offence
        if self._allowance.is_over:
            raise TookTooLong(f"took longer than {self._limit.total_seconds():g} s")
        return result

    def pause(self) -> None:
        """Stop the time, and allow I/O."""
        self._watchdog.disarm(self._allowance)
        unguard(self._guard)

    def resume(self) -> None:
        """Undo `pause`."""
        self._watchdog.arm(self._allowance)
        guard(self._guard)

    def _run(self, function: Callable[[], T], layers: int) -> T:
        """Call the function inside as many layers as there can be shots.

        A shot that comes while one layer is leaving is caught by the next one, so that none ever gets out after the
        last has left.
        """
        if layers:
            try:
                return self._run(function, layers - 1)
            except BaseException:
                self.pause()
                raise
        try:
            self.resume()
            return function()
        finally:
            self.pause()


def filtered(view: BoundView, ask: Callable[[], T]) -> T:
    """Call what asks the view's filters.

    Raises what they raise, and HandlerFault if one takes too long or does I/O.
    """
    if not view.handler.reader.selector.has_functions:
        return ask()
    return FunctionGuard(f"filter of view {view.name}", VIEW_TIME).run(ask)
