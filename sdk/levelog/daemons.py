"""What a daemon gets: its object as it changes, its saved state, and a signal to end."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from levelog.levels import LevelStatus

ObjectT = TypeVar("ObjectT")
StateT = TypeVar("StateT")

StopReason: TypeAlias = Literal["unwanted", "shutdown", "lost"]
"""Why a daemon has to end: its object is gone or left out by the filters; the process ends; another process may have
the claim."""


class LiveLevel(ABC):
    """A level of a daemon's object: `daemon.level(fresh)`.

    You get what `levels: Levels` gives a view, with empty `children`; None if there is no level, because the view was
    not called for the object yet or its filters exclude it. It is the level of the last decision, so the object may
    have changed since. Waiting does not poll. If the database is away, the daemon continues to wait.
    """

    @abstractmethod
    async def get(self) -> LevelStatus | None:
        """The level now. Raises Unavailable."""

    @abstractmethod
    def changes(self) -> AsyncIterator[LevelStatus | None]:
        """Yield the level now, then after each change except one of `since` alone, until the daemon has to end.

        If changes come faster than you take them, you get only the newest.
        """

    @abstractmethod
    async def until(self, condition: Callable[[LevelStatus], bool]) -> LevelStatus | None:
        """Wait until the level meets the condition, and return it; None if the daemon has to end first.

        While there is no level, the condition is not called.
        """


class Daemon(ABC, Generic[ObjectT, StateT]):
    """The running daemon, as its function gets it: `daemon: Daemon[Job, Progress]`.

    `Progress` is the type of its state, which takes up to 64 KiB as JSON.
    """

    @property
    @abstractmethod
    def object(self) -> ObjectT:
        """The object as the log last showed it."""

    @property
    @abstractmethod
    def state(self) -> StateT | None:
        """The state that this run or an earlier one saved last; None if none did."""

    @property
    @abstractmethod
    def reason(self) -> StopReason | None:
        """Why the daemon has to end; None while it may continue."""

    @abstractmethod
    async def save(self, state: StateT) -> None:
        """Store the state; the next run begins with it.

        Raises DaemonLost, and stores nothing, if this process has lost the claim of the daemon. Raises Unavailable if
        the database does not answer; the state may be stored or not.
        """

    @abstractmethod
    async def stopped(self) -> StopReason:
        """Wait until the daemon has to end, and return why."""

    @abstractmethod
    async def sleep(self, delay: timedelta) -> bool:
        """Wait, and return whether to continue; returns False at once when the daemon has to end."""

    @abstractmethod
    def changes(self) -> AsyncIterator[ObjectT]:
        """Yield the object now, then after each change, until the daemon has to end.

        If changes come faster than you take them, you get only the newest object.
        """

    @abstractmethod
    async def until(self, condition: Callable[[ObjectT], bool]) -> bool:
        """Wait until the object meets the condition; returns False if the daemon has to end first."""

    @abstractmethod
    def level(self, view: Callable[..., Any]) -> LiveLevel:
        """The level that a view has for this object, to read or to wait for.

        `view` is an `@op.view` or `@op.children` function of the same operator and resource; raises OperatorError for
        any other.
        """


class Run(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of a daemon: the request of its effect, with the state that it begins with once that is known."""

    number: int
    state: Any = None


class RunEnd(Struct, frozen=True, kw_only=True):
    """How a run ended, and with which state."""

    is_finished: bool
    """It returned by itself; else its object went, or did not fit any more."""
    state: Any = None
