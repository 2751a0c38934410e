"""Errors of users' functions: one sentence for the level, one warning for the log."""

import inspect
import logging
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, Final

from levelog_base.errors import LevelogError
from levelog_base.wire.canonical import storable

MAX_MESSAGE: Final = 1000
"""Characters of an error that are kept."""

_OPERATORS: Final = "levelog_operator_"
"""How the modules of operator files are named."""

log = logging.getLogger(__name__)


class HandlerFault(Exception):
    """A user's function did something forbidden; the message does not name the function."""


class StillRuns(HandlerFault):
    """A function was not called, since an earlier call of it goes on although its time is over."""


class Interruption(BaseException):
    """Ends a user's function from outside and is not its fault: code that handles faults lets it pass."""


@contextmanager
def containing(*passes: type[BaseException]) -> Generator[None]:
    """Replace an error that would end more than its function: sys.exit(), Ctrl-C, a cancellation unless it `passes`."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, (Exception, Interruption, *passes)):
            raise
        words = described(error)
        called = f"called sys.exit({words.partition(': ')[2]})" if isinstance(error, SystemExit) else f"raised {words}"
        raise HandlerFault(called) from error


def fault_reason(kind: str, name: str, error: BaseException) -> str:
    """Reason of a level whose function failed: `view pods: KeyError: 'image'`."""
    return f"{kind} {name}: {described(error)}"


def described(error: BaseException) -> str:
    """Type and message of an error, as text that any database takes; the message alone where levelog wrote it."""
    try:
        words = str(error)
    except Interruption:
        raise
    except BaseException:  # noqa: BLE001 - an exception of the user's own may raise anything here too
        words = "(its message cannot be read)"
    is_ours = isinstance(error, HandlerFault | LevelogError)
    message = words if is_ours else f"{type(error).__name__}: {words}".removesuffix(": ")
    return storable(message[:MAX_MESSAGE])


def tell_fault(
    kind: str,
    name: str,
    function: Callable[..., Any],
    error: BaseException,
    *,
    subject: str,
    effect: str = "",
    clean: Callable[[str], str] = str,
) -> None:
    """Warn of a function that failed for an object, with the place in the user's file; the traceback at level debug.

    `effect` is what becomes of the object, if that is not its level's failure; `clean` takes secrets out of a text.
    """
    place = _place(function, error)
    log.warning(
        "%s failed for %s%s: %s%s",
        f"{kind} {name}",
        subject,
        f", which {effect}" if effect else "",
        clean(described(error)),
        f" ({place})" if place else "",
        extra={"object": subject, "function": name, "error": type(error).__name__, "place": place},
    )
    if log.isEnabledFor(logging.DEBUG):
        trace = clean("".join(traceback.format_exception(error)).rstrip())
        log.debug("%s\n%s", f"{kind} {name} failed for {subject}:", trace, extra={"object": subject, "function": name})


def is_levelogs(frame: FrameType) -> bool:
    """Tell whether levelog's own code runs in a frame."""
    name = str(frame.f_globals.get("__name__", ""))
    return name.startswith("levelog") and not name.startswith(_OPERATORS)


def _place(function: Callable[..., Any], error: BaseException) -> str:
    """File and line that was running: in the file of the function if it got there, else where the function begins.

    What ended a function is the cause of the error that says so.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return ""
    line = code.co_firstlineno
    raised = [each.__traceback__ for each in (error.__cause__, error) if each is not None]
    for frame, number in chain.from_iterable(map(traceback.walk_tb, raised)):
        if frame.f_code.co_filename == code.co_filename:
            line = number
    return f"{Path(code.co_filename).name} line {line}"
