"""Parts of a command that run in processes of their own, forked from one that has loaded what they need.

Loading takes two seconds, a fork some milliseconds, and what a part has changed in its process is gone with it. The
process that forks has no threads and no event loop, and runs no code of operators.
"""

import ctypes
import importlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any, Final

from levelog_cli.running import execute, tell_of
from levelog_cli.settings import Settings

LOOK_SECONDS: Final = 0.1
"""Between two looks at what may have changed."""
_STOP_SECONDS: Final = 20.0
"""The embedded NATS server has ten to end in."""

_PR_SET_PDEATHSIG: Final = 1
"""Of linux/prctl.h: the signal that a process gets when its parent is gone, whatever ended that."""
_LOADED: Final = (
    "uvloop",
    "levelog_actuator.actuator",
    "levelog_cli.servers.clusters",
    "levelog_cli.servers.databases",
    "levelog_cli.wiring.rerun",
    "levelog_cli.wiring.stack",
    "levelog_cli.wiring.working",
    "levelog_ingest.ingest",
)
"""What takes time to load."""


def preload() -> None:
    """Load what the parts need, so that none of them has to."""
    for name in _LOADED:
        importlib.import_module(name)
    sys.dont_write_bytecode = True  # it is taken for current if a file was saved twice within a second


class Family:
    """The processes that one command forks, which end with it.

    SIGINT and SIGTERM set `is_ending`: whoever waits returns soon after.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.is_ending = False
        self._members: list[Child] = []

    @contextmanager
    def ending_by_signals(self) -> Generator[None]:
        """Take the signals while the context is open, and end all members with it."""
        asked: list[int] = []

        def end(number: int, _: object) -> None:
            asked.append(number)
            if self.is_ending:
                for member in self._members:
                    member.kill()
            self.is_ending = True

        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, end) for number in numbers}
        try:
            yield
        finally:
            if asked:
                tell_of(signal.Signals(asked[0]))
            self.end()
            for number, handler in before.items():
                signal.signal(number, handler)

    def end(self, but: "Child | None" = None) -> None:
        """Stop the members, the youngest first."""
        for member in reversed(self._members):
            if member is not but:
                member.stop()

    def fork(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> "Child":
        """Start a member that does some work as a command does, until that is done or the command is gone."""

        def begin() -> None:
            os.setpgid(0, 0)  # Ctrl-C is for the command, which stops its members in order
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() == command:  # else it is gone already, and the kernel does not say so
                execute(self._settings, work, is_part=True)

        command = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        child = Child(target=begin, name=name)
        child.start()
        self._members = [*(each for each in self._members if each.is_alive()), child]
        return child

    def wait(self, *children: "Child | Connection") -> None:
        """Wait a little, or until one of them has ended or has something to say."""
        connection.wait([each.sentinel if isinstance(each, Child) else each for each in children], LOOK_SECONDS)


class Child(ForkProcess):
    """A process; its exit code is the status with which `levelog` itself would end."""

    def stop(self) -> None:
        """Ask it to end, and wait for that."""
        self.terminate()
        self.end()

    def end(self) -> None:
        """Wait until it has ended by itself; after twenty seconds it is killed."""
        self.join(_STOP_SECONDS)
        self.kill()
        self.join()
