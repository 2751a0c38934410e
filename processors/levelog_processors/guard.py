"""Calls functions that only compute: with a time limit, and without I/O where a process checks that.

Once a call's time is over, the handler of a signal raises TimeIsOver in the main thread, where the event loop of a
process runs, again and again. Python calls handlers between two steps of Python code, and in C code that asks for
signals: regular expressions, sleeps, locks, sockets. Other C code is not ended; the log names the function.

Limits: in another thread, as in a simulation, only Python code is ended.
"""

import ctypes
import logging
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from time import monotonic
from types import FrameType
from typing import Any, Final, TypeVar

from levelog.calls.audithook import computing, unchecked
from levelog.calls.faults import HandlerFault, Interruption, described
from levelog.handlers.viewhandlers import VIEW_TIME
from levelog_base.wire.canonical import digest
from levelog_processors.bound import BoundView

T = TypeVar("T")

log = logging.getLogger(__name__)

SIGNAL: Final = signal.SIGVTALRM
"""That of a timer of CPU time, which hardly any program has: sent by the timer, and by a thread to what waits."""
LOOK_SECONDS: Final = 0.25
"""How often it looks whether the time of a call is over."""
TOLD_AFTER_SECONDS: Final = 2.0
"""How long after its time a function that still runs is told of in the log."""

_MAIN: Final = threading.main_thread().ident
_raise_in_thread: Any = ctypes.pythonapi.PyThreadState_SetAsyncExc
_running: Final[dict[int, "FunctionGuard"]] = {}
"""The call that each thread is in."""
_ending: Final = threading.Lock()
"""Held to raise in a thread, and by that thread to leave its call: nothing is raised in what it does next."""
_has_begun: Final = threading.Event()
"""A call began since the watchdog saw none; while nothing is called, it sleeps."""


class TimeIsOver(BaseException):
    """The time of the function that runs is over. Not an Exception, so that `except Exception` does not swallow it."""


class TookTooLong(HandlerFault):
    """A function exceeded its time limit."""


class FunctionGuard:
    """One call of a view, an index function or a filter."""

    def __init__(self, name: str, limit: timedelta) -> None:
        self._name = name
        self._limit = self._seconds_left = limit.total_seconds()
        self._ends_at = 0.0
        self._is_told = False

    def run(self, function: Callable[[], T]) -> T:
        """Call the function; raises what it raises.

        Raises TookTooLong if it exceeds its time limit, and HandlerFault if it does I/O, even if it caught the refusal.
        """
        try:
            with computing(__name__) as refusals:
                result = self._timed(function)
        except TimeIsOver as over:
            self.pause()  # it may have hit the first one in another thread
            raise TookTooLong(f"took longer than {self._limit:g} s and was ended") from over
        refusals.require_none()
        if self._seconds_left < 0:
            raise TookTooLong(f"took longer than {self._limit:g} s")
        return result

    def pause(self) -> None:
        """Stop the time."""
        thread = threading.get_ident()
        with _ending:
            _running.pop(thread, None)
        if thread == _MAIN:  # else it goes on until the process ends, whose signals then have no handlers
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self._seconds_left = self._ends_at - monotonic()

    def resume(self) -> None:
        """Undo `pause`."""
        self._ends_at = monotonic() + self._seconds_left
        thread = threading.get_ident()
        _running[thread] = self
        if not _has_begun.is_set():  # asked after that: the watchdog clears it before it looks who runs
            _has_begun.set()
        if thread == _MAIN:  # C code may let no other thread run
            signal.setitimer(signal.ITIMER_VIRTUAL, LOOK_SECONDS, LOOK_SECONDS)

    @property
    def seconds_over(self) -> float:
        """How long the call, which runs, has taken more than it may."""
        return monotonic() - self._ends_at

    def tell(self) -> None:
        """Say in the log, once, that the function still runs."""
        if not self._is_told:
            self._is_told = True
            log.error("%s took longer than %g s and still runs; it holds up its thread", self._name, self._limit)

    def _timed(self, function: Callable[[], T]) -> T:
        if threading.get_ident() == _MAIN:
            _heed_signals()
        with _ending:  # `cache` alone lets calls that begin at once in several threads start one each
            _begin_watch()
        self.resume()
        try:
            return function()
        finally:
            self.pause()


_OWN: Final = {each.__code__ for each in (FunctionGuard.pause, FunctionGuard.resume, FunctionGuard._timed)}  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
"""Where TimeIsOver is never raised, so that it is raised in the function and not after it."""


@contextmanager
def suspended() -> Generator[None]:
    """Stop the time of whatever runs in this thread, and allow it I/O, while somebody looks at it in a debugger."""
    call = _running.get(threading.get_ident())
    if call is not None:
        call.pause()
    try:
        with unchecked():
            yield
    finally:
        if call is not None:
            call.resume()


def filtered(view: BoundView, ask: Callable[[], T]) -> T:
    """Call what asks the view's filters.

    Raises what they raise, and HandlerFault if one takes too long or does I/O.
    """
    if not view.handler.reader.selector.has_functions:
        return ask()
    return FunctionGuard(f"filter of view {view.name}", VIEW_TIME).run(ask)


def parent_inputs(view: BoundView, body: bytes, fields_read: bytes | None) -> str | None:
    """Identity of the part of a parent that a view sees; None if the view's filters exclude it.

    `fields_read` are those of the last evaluation, for views of plain objects. If the parent cannot be decoded, or a
    filter raises, the identity is that of the error, so that the level is evaluated and shows it.
    """
    try:
        return filtered(view, lambda: view.handler.reader.inputs(body, fields_read))
    except Interruption:
        raise
    except BaseException as error:  # noqa: BLE001 - a filter is the user's and may raise anything; only this level is concerned
        return digest("unreadable", described(error))


@cache
def _heed_signals() -> None:
    signal.signal(SIGNAL, _end)


@cache
def _begin_watch() -> None:
    threading.Thread(target=_watch, name="levelog watchdog", daemon=True).start()


def _watch() -> None:
    """Look after the calls of all threads until the process ends."""
    while True:
        if not _running:
            _has_begun.wait()
            _has_begun.clear()
        time.sleep(LOOK_SECONDS)
        for thread, call in list(_running.items()):
            if call.seconds_over > 0 and thread == _MAIN:
                signal.pthread_kill(thread, SIGNAL)
            elif call.seconds_over > 0:
                with _ending:
                    if _running.get(thread) is call:
                        _raise_in_thread(ctypes.c_ulong(thread), ctypes.py_object(TimeIsOver))
            if call.seconds_over > TOLD_AFTER_SECONDS:
                call.tell()


def _end(_: int, frame: FrameType | None) -> None:
    call = _running.get(threading.get_ident())
    if call is not None and call.seconds_over > 0 and frame is not None and frame.f_code not in _OWN:
        raise TimeIsOver
