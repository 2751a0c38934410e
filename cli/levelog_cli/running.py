"""Runs a command to its end: logs, event loop, signals, and errors."""

import asyncio
import logging
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from concurrent.futures.process import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple

from levelog.escapes import escaped
from levelog.handlers.callnames import in_words
from levelog_base.errors import ConfigurationError, LevelogError
from levelog_cli.logs import set_up_logs
from levelog_cli.settings import Settings, misspelt

FAILED: Final = 1
MISUSED: Final = 2
"""As typer ends for an option that does not exist."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

log = logging.getLogger(__name__)

ArgumentTs = TypeVarTuple("ArgumentTs")
ResultT = TypeVar("ResultT")

Command = Callable[[], Coroutine[Any, Any, None] | None]
"""What it does before it returns needs no event loop: a signal ends it at once."""
Tell = Callable[[signal.Signals], None]


def execute(settings: Settings, command: Command, *, is_part: bool = False, is_seen: bool = False) -> None:
    """Run a command, or a part of one; an error of levelog ends it with one sentence on stderr and an exit status.

    The status is 2 where the command, a file or the environment has to be changed, else 1. Anything else that is
    raised is a defect, and keeps its traceback. SIGINT and SIGTERM cancel the command, which then ends with status 0;
    so does one whose reader on stdout is gone. A part says nothing of signals: they come from its command, which does.
    `is_seen`: Python's audit events show all that functions do in the event loop, which is slower then.
    """
    set_up_logs(settings.log_format, settings.log_level)
    tell = _tell_nobody if is_part else tell_of
    for warning in () if is_part else misspelt(os.environ):
        log.warning(warning)
    try:
        settings.check()
        with _ending_early(tell):
            _run(command, tell, is_seen=is_seen)
        if not sys.stdout.closed:  # by a function of the user
            sys.stdout.flush()
    except BrokenPipeError:
        if not _is_reader_gone():
            raise
    except LevelogError as error:
        _end(settings, error)
    except BaseExceptionGroup as group:
        _, defects = group.split(LevelogError)
        if defects is not None:
            raise
        _end(settings, first_error(group))


def _is_reader_gone() -> bool:
    """Tell whether nobody reads stdout any more, as after `| head`; what is still buffered then goes nowhere."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if not poll.poll(0):
        return False
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return True


def first_error(group: BaseException) -> BaseException:
    """The error that the others followed from: a task group lists them in the order in which its tasks failed.

    What is raised in the body of a group comes last in its list, so groups that fail hold their work in tasks.
    """
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


def _end(settings: Settings, error: BaseException) -> NoReturn:
    if settings.debug:
        traceback.print_exception(error)
    sys.stderr.write(f"levelog: {escaped(in_words(' '.join(str(error).split())))}\n")
    raise SystemExit(MISUSED if isinstance(error, ConfigurationError) else FAILED)


@contextmanager
def _ending_early(tell: Tell) -> Generator[None]:
    """Let a signal end the command with status 0 while it loads, before its event loop takes the signals."""

    def end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
        tell(signal.Signals(number))
        raise _Stopped

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        with suppress(_Stopped):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def tell_of(number: signal.Signals) -> None:
    """Say that a signal ends the command."""
    log.info("stops, as %s asks", number.name)


def _tell_nobody(_: signal.Signals) -> None:
    """Say nothing."""


def _run(command: Command, tell: Tell, *, is_seen: bool) -> None:
    import uvloop  # noqa: PLC0415 - commands that end before this start without it

    if (coroutine := command()) is None:
        return
    new_loop = _SeenLoop if is_seen else uvloop.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner, suppress(_Stopped):
        runner.run(_until_stopped(coroutine, tell))


class _SeenLoop(asyncio.SelectorEventLoop):
    """Python's own loop, but that what it does in threads, looking up names above all, has the context of who asked."""

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*ArgumentTs], ResultT], *args: *ArgumentTs
    ) -> "asyncio.Future[ResultT]":
        """Call a function in a thread."""
        if isinstance(executor, ProcessPoolExecutor):
            return super().run_in_executor(executor, func, *args)
        return super().run_in_executor(executor, partial(copy_context().run, func, *args))


class _Stopped(BaseException):
    """A signal asked the command to end, and it did. What files of the user raise is something else."""


async def _until_stopped(command: Coroutine[Any, Any, None], tell: Tell) -> None:
    """Run the command as a task that the first signal cancels; the second one ends the process at once."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(command, name="command")
    is_stopped = False

    def stop(number: signal.Signals) -> None:
        nonlocal is_stopped
        is_stopped = True
        tell(number)
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)
        task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if is_stopped:
            raise _Stopped from None
        raise
