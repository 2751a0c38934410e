"""What a daemon gets: its object as it changes, its saved state, and a signal to end."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from levelog.levels import Standing

ObjectT = TypeVar("ObjectT")
StateT = TypeVar("StateT")

StopReason: TypeAlias = Literal["unwanted", "shutdown", "lost"]
"""Why a daemon has to end: its object is gone or left out by the filters; the process ends; another process may have
the claim."""


class LiveLevel(ABC):
    """How a level of a daemon's object stands: `daemon.level(fresh)`.

    It is what a view gets by `levels: Levels`, but for `children`, which is empty; None where there is no level: the
    view was not called for the object yet, or its filters leave it out. It is as it was decided on last, so a change of
    the object may be newer. Waiting costs nothing while no level of the operator stands otherwise. A daemon that loses
    its database goes on to wait.
    """

    @abstractmethod
    async def get(self) -> Standing | None:
        """How it stands now. Raises Unavailable."""

    @abstractmethod
    def changes(self) -> AsyncIterator[Standing | None]:
        """Yield how it stands, then after each change but one of `since` alone, until the daemon has to end.

        Changes that come faster than they are taken are one.
        """

    @abstractmethod
    async def until(self, condition: Callable[[Standing], bool]) -> Standing | None:
        """Wait until the condition holds, and return how the level stands; None: the daemon has to end first.

        While there is no level, the condition is not asked.
        """


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
    async def save(self, state: StateT) -> None:
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

    @abstractmethod
    def level(self, view: Callable[..., Any]) -> LiveLevel:
        """How the level of a view of this object stands, to look at and to wait for.

        The function is one of `@op.view` or `@op.children`, of the same operator and resource; raises OperatorError for
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
