"""What a daemon is given: its object as it changes, its state, which is kept, and word of when it has to end."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

ObjectT = TypeVar("ObjectT")
StateT = TypeVar("StateT")

StopReason: TypeAlias = Literal["unwanted", "shutdown", "lost"]
"""Why a daemon has to end: its object is gone or left out by the filters; the process ends; another process may have
the claim."""


class Daemon(ABC, Generic[ObjectT, StateT]):
    """A function that runs for as long as its object is there, as it sees itself: `daemon: Daemon[Job, Progress]`.

    `Progress` is the type of its state, which has a JSON form of up to 64 KiB.
    """

    @property
    @abstractmethod
    def object(self) -> ObjectT:
        """The object as the log last showed it."""

    @property
    @abstractmethod
    def state(self) -> StateT | None:
        """What was kept last, by this run or one before it; None: nothing was."""

    @property
    @abstractmethod
    def reason(self) -> StopReason | None:
        """Why it has to end; None: it may go on."""

    @abstractmethod
    async def keep(self, state: StateT) -> None:
        """Store the state, so that the next run begins with it.

        Raises DaemonLost, and stores nothing, if this process does not have the claim of the daemon any more; and
        Unavailable if the database does not answer: it may have been stored or not.
        """

    @abstractmethod
    async def stopped(self) -> StopReason:
        """Wait until it has to end, and return why."""

    @abstractmethod
    async def sleep(self, delay: timedelta) -> bool:
        """Wait; returns whether to go on: False, at once, when it has to end."""

    @abstractmethod
    def changes(self) -> AsyncIterator[ObjectT]:
        """Yield the object as it is, then after each change, until the daemon has to end.

        Changes that come faster than they are taken are one.
        """

    @abstractmethod
    async def until(self, condition: Callable[[ObjectT], bool]) -> bool:
        """Wait until the condition holds of the object; False: the daemon has to end first."""


class Run(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of a daemon: the request of its effect, with the state that it begins with once that is known."""

    number: int
    state: Any = None


class RunEnd(Struct, frozen=True, kw_only=True):
    """How a run ended, and with which state."""

    is_finished: bool
    """It returned by itself; else its object went, or did not fit any more."""
    state: Any = None
