"""Python's debugger, limited to users' functions: it skips frames of levelog and of the event loop."""

import pdb  # noqa: T100 - this is no breakpoint that was left behind
import signal
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import CodeType, FrameType, TracebackType
from typing import Any, NoReturn

from levelog.calls.faults import Interruption, is_levelogs
from levelog_processors.guard import suspended


class DebuggerLeft(Interruption):
    """Somebody quit the debugger, or its input has ended. Not an Exception, so that no decision fails by it."""


class HandlerDebugger(pdb.Pdb):
    """Stops in one function at a time, and in what that calls of users' code.

    Its prompt blocks the event loop; the time limits of functions stand meanwhile. Used in the main thread.
    """

    def __init__(self, before_asking: Callable[[], None]) -> None:
        """`before_asking` takes away what else is shown on the terminal."""
        super().__init__(nosigint=True)
        self._before_asking = before_asking
        self._within: CodeType | None = None
        self._heading: Iterable[str] = ()
        self.is_left = False
        """Somebody has quit."""

    def enter(self, function: CodeType, heading: Iterable[str]) -> None:
        """Stop at the first line of a function that is called next; before the first prompt, print the heading."""
        self.reset()
        self._within = function
        self._heading = heading
        sys.settrace(self.trace_dispatch)

    def enter_here(self, frame: FrameType, heading: Iterable[str]) -> None:
        """Stop at the next line of a frame."""
        self.reset()
        self._heading = heading
        outermost: FrameType | None = frame
        while outermost is not None and not is_levelogs(outermost):
            self._within = outermost.f_code
            outermost.f_trace = self.trace_dispatch
            self.botframe = outermost
            outermost = outermost.f_back
        sys.settrace(self.trace_dispatch)

    def leave(self) -> None:
        """Stop no more."""
        sys.settrace(None)

    def look_back(self, trace: TracebackType | None, heading: Iterable[str]) -> None:
        """Ask about the frames of an exception; not if none of them is in users' code."""
        self.reset()
        self._heading = heading
        while trace is not None and is_levelogs(trace.tb_frame):
            trace = trace.tb_next
        if trace is not None:
            self.interaction(None, trace)

    def interaction(self, frame: FrameType | None, traceback: TracebackType | None) -> None:
        """Ask until somebody wants to go on. Raises DebuggerLeft if that is to leave."""
        with suspended(), _own_signals():
            self._before_asking()
            for line in self._heading:
                self.message(line)
            self._heading = ()
            super().interaction(frame, traceback)
        if self.quitting:
            self.is_left = True
            raise DebuggerLeft

    def stop_here(self, frame: FrameType) -> bool:
        """Tell whether to stop in a frame: only below the function that was entered."""
        return super().stop_here(frame) and self._is_within(frame)

    def break_here(self, frame: FrameType) -> bool:
        """The same, where somebody has set a breakpoint."""
        return super().break_here(frame) and self._is_within(frame)

    def user_call(self, frame: FrameType, argument_list: None) -> None:
        """A step into a function stops at its first line, not before it."""

    def get_stack(self, f: FrameType | None, t: TracebackType | None) -> tuple[list[tuple[FrameType, int]], int]:
        """The frames of users' code that a prompt shows, without those of levelog that called it."""
        stack, current = super().get_stack(f, t)
        above = 0
        while above < current and is_levelogs(stack[above][0]):
            above += 1
        return stack[above:], current - above

    def do_run(self, arg: str) -> None:
        """Running anew is for the command line."""
        del arg
        self.error("give the command again")

    do_restart = do_run

    def _is_within(self, frame: FrameType) -> bool:
        """Tell whether users' code alone leads from the function that was entered to a frame.

        What levelog calls on the way holds locks that the debugger needs itself.
        """
        outer: FrameType | None = frame
        while outer is not None and not is_levelogs(outer):
            if outer.f_code is self._within:
                return True
            outer = outer.f_back
        return False


@contextmanager
def _own_signals() -> Generator[None]:
    """Ctrl-C clears the line, as in any debugger, and a wish to end is heard although the event loop stands."""

    def end(_: int, __: FrameType | None) -> NoReturn:
        raise DebuggerLeft

    wakeup = signal.set_wakeup_fd(-1)
    before: dict[int, Any] = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, end),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
