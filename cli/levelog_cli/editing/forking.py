"""Parts of a command that run in processes of their own, forked from one that has loaded what they need.

Loading takes two seconds, a fork some milliseconds, and what a part has changed in its process is gone with it. The
process that forks has no threads and no event loop, and runs no code of operators.
"""

import asyncio
import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext
from typing import Any, Final

from levelog_cli.running import execute, tell_of
from levelog_cli.settings import Settings

LOOK_SECONDS: Final = 0.1
"""Between two looks at what may have changed."""
_STOP_SECONDS: Final = 20.0
"""The embedded NATS server has ten to end in."""
_context: Final[ForkContext] = multiprocessing.get_context("fork")


_LOADED: Final = (
    "uvloop",
    "levelog_actuator.actuator",
    "levelog_cli.servers.clusters",
    "levelog_cli.servers.databases",
    "levelog_cli.wiring.rerun",
    "levelog_cli.wiring.stack",
    "levelog_cli.wiring.watching",
    "levelog_cli.wiring.working",
)
"""What takes time to load."""


def preload() -> None:
    """Load what the parts need, so that none of them has to."""
    for name in _LOADED:
        importlib.import_module(name)
    sys.dont_write_bytecode = True  # it is taken for current if a file was saved twice within a second


class Family:
    """The processes that one command forks, which end with it; `with Family() as family`.

    SIGINT and SIGTERM set `is_ending`: whoever waits returns soon after.
    """

    def __init__(self) -> None:
        self.is_ending = False
        self._alive, self._lifeline = os.pipe()
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

    def fork(self, name: str, work: Callable[[], None]) -> "Child":
        """Start a member that does the work and ends."""

        def begin() -> None:
            os.setpgid(0, 0)  # Ctrl-C is for the command, which stops its members in order
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.close(self._lifeline)
            work()

        child = Child(name, begin)
        self._members = [*(each for each in self._members if each.is_running), child]
        return child

    async def alive(self) -> None:
        """Wait, in a member, for the end of the command, whatever ended it."""
        loop, is_over = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._alive, is_over.set)
        try:
            await is_over.wait()
        finally:
            loop.remove_reader(self._alive)

    def wait(self, *children: "Child | Connection") -> None:
        """Wait a little, or until one of them has ended or has something to say."""
        connection.wait([each.sentinel if isinstance(each, Child) else each for each in children], LOOK_SECONDS)


class Child:
    """A process; its status is as `levelog` itself would end."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._process = _context.Process(target=work, name=name)
        self._process.start()
        self.sentinel = self._process.sentinel

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.is_alive()

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self._process.exitcode

    def stop(self) -> None:
        """Ask it to end, and wait for that; after twenty seconds it is killed."""
        if self.is_running:
            self._process.terminate()
        self.join()

    def join(self) -> None:
        """Wait until it has ended by itself; it is killed after twenty seconds."""
        self._process.join(_STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.join()


def fork_part(family: Family, settings: Settings, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Child:
    """Start a member that does some work as a command does, until that is done or the command is gone."""
    return family.fork(name, lambda: execute(settings, lambda: until_gone(family, work()), is_part=True))


async def until_gone(family: Family, work: Coroutine[Any, Any, None]) -> None:
    """Do the work of a member until it is done, or the command that forked it is gone."""
    async with asyncio.TaskGroup() as tasks:
        living = tasks.create_task(family.alive())
        doing = tasks.create_task(work)
        living.add_done_callback(lambda _: doing.cancel())
        doing.add_done_callback(lambda _: living.cancel())
