"""Ends a function that computes for too long, by an exception that another thread raises in it.

Only Python code can be ended so: a call into C that does not return holds up the exception until it does.
"""

import ctypes
import gc
import logging
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any, Final

log = logging.getLogger(__name__)

SHOTS: Final = 3
"""How often the exception is raised in a function that swallows it."""
NEXT_SHOT_SECONDS: Final = 1.0
NOTICE_SECONDS: Final = 0.02
"""How long a shot may wait to be noticed: while it does, CPython 3.11 runs no other function that is traced."""
RETRY_SECONDS: Final = 0.2
_IDLE_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 1.0
"""How often it looks while nothing is armed, so that few calls have to wake it: most may take longer than that."""
_NEVER: Final = float("inf")

_collecting: Final = set[int]()
"""Threads that collect garbage: whatever finalizers they run there, of any library, they swallow what hits them."""
_raise_in_thread: Any = ctypes.pythonapi.PyThreadState_SetAsyncExc


class TimeIsOver(BaseException):
    """The time of the function that runs is over. Not an Exception, so that `except Exception` does not swallow it."""

    def __init__(self) -> None:
        super().__init__()
        watchdog().noticed()


class _Cleared(BaseException):
    """What the thread that takes a shot back hits itself with, at once.

    Taking one back is not enough: on CPython 3.11 each traced function goes on looking for it at its first instruction,
    for ever, until some thread is hit.
    """


class Allowance:
    """The time that one call may take, while it runs."""

    def __init__(self, name: str, limit: timedelta) -> None:
        self.name = name
        self.seconds_left = limit.total_seconds()
        self.is_over = False
        self.shots = 0
        """Shots that hit."""
        self.quiet_until = 0.0


class Watchdog:
    """Watches the calls of one thread, one at a time; used by that thread.

    A call that waits in C notices a shot only when it returns, and until then every traced function of the process
    (coverage, a debugger) stands still on CPython 3.11. So an unnoticed shot is taken back soon, and fired again later.

    Guarantees that `TimeIsOver` is raised between `arm` and the return of `disarm`, and never after: both `disarm` and
    the shot hold one lock, and `disarm` takes back a shot that was not noticed yet. On its way to the lock `disarm` may
    be hit itself, so its caller has to be ready for `SHOTS` in a row, and to call it again.

    Arming costs no switch of threads: the watchdog looks for a deadline once in a while, as long as it is used.
    """

    def __init__(self) -> None:
        self._ident = threading.get_ident()
        self._watched = ctypes.c_ulong(self._ident)
        # Held by the watched thread through `with self._lock` alone: what is written in C takes it and enters the block
        # in one step, while a Condition could be hit between the two and leave the lock taken.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._armed: Allowance | None = None
        self._deadline = _NEVER
        self._wakes_at = _NEVER
        self._is_pending = False
        self._is_running = False
        self._is_used = False
        """It was armed since it looked last."""

    def arm(self, allowance: Allowance) -> None:
        """Let the time of a call run."""
        deadline = monotonic() + allowance.seconds_left
        with self._lock:
            self._armed = allowance
            self._deadline = deadline
            self._is_used = True
            if deadline < self._wakes_at:
                self._wakes_at = deadline
                self._wake()

    def disarm(self, allowance: Allowance) -> None:
        """Stop the clock of a running call; it may be armed again with the time that is left."""
        with self._lock:
            if self._armed is not allowance:
                return
            if self._is_pending:  # first of all: up to here a shot may hit, after it none can
                try:
                    _raise_in_thread(self._watched, _CLEARED)  # in place of the shot
                    while True:
                        pass
                except _Cleared:
                    self._is_pending = False
            self._armed = None
            allowance.seconds_left = max(0.0, self._deadline - monotonic())
            self._deadline = _NEVER

    def noticed(self) -> None:
        """A shot has hit the watched thread, which calls this."""
        if self._armed is not None:
            self._armed.quiet_until = monotonic() + NEXT_SHOT_SECONDS
            self._armed.shots += 1
        self._is_pending = False

    @contextmanager
    def resting(self) -> Generator[None]:
        """Stop the time of the call that runs, if one does, until the context ends."""
        armed = self._armed
        if armed is not None:
            self.disarm(armed)
        try:
            yield
        finally:
            if armed is not None:
                self.arm(armed)

    def _wake(self) -> None:
        if self._is_running:
            self._changed.notify()
        else:
            self._is_running = True
            threading.Thread(target=self._watch, name="levelog watchdog", daemon=True).start()

    def _watch(self) -> None:
        """Run until nothing was armed for a while."""
        sys.settrace(None)  # a traced function that is called here while a shot is on its way would stand still
        sys.setprofile(None)
        with self._changed:
            used_at = monotonic()
            while True:
                now = monotonic()
                if self._armed is not None and now >= self._deadline:
                    self._act(self._armed, now)
                if self._is_used:
                    used_at, self._is_used = now, False
                elif now - used_at >= _IDLE_SECONDS and self._deadline == _NEVER:
                    self._is_running, self._wakes_at = False, _NEVER
                    return
                self._wakes_at = min(self._deadline, now + _LOOK_SECONDS)
                self._changed.wait(max(0.0, self._wakes_at - now))

    def _act(self, allowance: Allowance, now: float) -> None:
        if self._is_pending:
            self._take_back()
            self._deadline = now + RETRY_SECONDS
        elif self._ident in _collecting:
            self._deadline = now + RETRY_SECONDS
        elif now < allowance.quiet_until:
            self._deadline = allowance.quiet_until
        elif allowance.shots == SHOTS:
            log.error("%s swallows what should end it; it holds up this process", allowance.name)
            self._deadline = _NEVER
        else:
            self._shoot(allowance, now)

    def _shoot(self, allowance: Allowance, now: float) -> None:
        allowance.is_over = True
        self._deadline = now + NOTICE_SECONDS
        self._is_pending = True
        _raise_in_thread(self._watched, _EXPIRED)

    def _take_back(self) -> None:
        _raise_in_thread(self._watched, None)
        try:
            _raise_in_thread(ctypes.c_ulong(threading.get_ident()), _CLEARED)
            while True:
                pass
        except _Cleared:
            self._is_pending = False


def _note_collection(phase: str, _: dict[str, int]) -> None:
    (_collecting.add if phase == "start" else _collecting.discard)(threading.get_ident())


gc.callbacks.append(_note_collection)
_CLEARED: Final = ctypes.py_object(_Cleared)
_EXPIRED: Final = ctypes.py_object(TimeIsOver)
_of_thread = threading.local()


def watchdog() -> Watchdog:
    """The watchdog of the calling thread."""
    found: Watchdog | None = getattr(_of_thread, "watchdog", None)
    if found is None:
        found = _of_thread.watchdog = Watchdog()
    return found
