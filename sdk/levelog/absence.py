"""A server that is away: logged when it goes, at intervals, and when it is back; how long to wait for it."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from levelog_base.errors import LevelogError

log = logging.getLogger(__name__)

FIRST_REMINDER_SECONDS: Final = 10.0
LONGER: Final = 6
"""Each reminder comes after so many times the time of the one before: 10 s, 1 min, 6 min, 36 min."""
SETTLING_SECONDS: Final = 5.0
"""A server that has just come back may refuse requests for this long before it serves them."""
LOSS_SECONDS: Final = 60.0
"""What is missed that long after a server came back was lost while it was away."""


class Absence:
    """Whether a server answers; its users note each failure and each answer here, and only this class logs them."""

    def __init__(self, server: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`server` begins sentences: "NATS at URL". `clock` counts seconds."""
        self._server = server
        self._clock = clock
        self._has_answered = False
        self._since: float | None = None
        self._back_at: float | None = None
        self._is_said = False
        self._is_loss_said = False
        self._next_reminder = 0.0
        self._listeners: set[Callable[[], None]] = set()

    @property
    def is_on(self) -> bool:
        """The server is away."""
        return self._since is not None

    @property
    def is_felt(self) -> bool:
        """The server is away, or came back so shortly ago that it may not serve everything yet."""
        return self.is_on or self._is_back_since_less_than(SETTLING_SECONDS)

    def began(self, error: BaseException | str) -> None:
        """Note that the server cannot be reached; one that never answered is left to the caller."""
        if not self._has_answered:
            return
        if self._since is None:
            self._is_said = not self.is_felt  # what broke before it came back may be noticed only now
            self._since = self._clock()
            self._is_loss_said = False
            self._next_reminder = FIRST_REMINDER_SECONDS if self._is_said else SETTLING_SECONDS
            if self._is_said:
                log.warning("%s is away: %s", self._server, error)
        elif (seconds := self._clock() - self._since) >= self._next_reminder:
            self._is_said, self._next_reminder = True, seconds * LONGER
            log.warning("%s has been away for %.0f s: %s", self._server, seconds, error)

    def covers(self, error: LevelogError) -> None:
        """Mark an error that needs no word of its own while the server is away."""
        error.is_told = error.is_told or self.is_felt

    def level_of_loss(self) -> int:
        """The level to log at that something was lost: where an absence took it, one warning stands for all of it."""
        is_of_absence = self.is_on or self._is_back_since_less_than(LOSS_SECONDS)
        if is_of_absence and self._is_loss_said:
            return logging.DEBUG
        self._is_loss_said = is_of_absence
        return logging.WARNING

    def ended(self) -> None:
        """Note that the server answers."""
        self._has_answered = True
        if self._since is None:
            return
        seconds, self._since, self._back_at = self._clock() - self._since, None, self._clock()
        if self._is_said:
            log.info("%s is back after %.0f s", self._server, seconds)
        for listener in tuple(self._listeners):
            listener()

    def on_end(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener each time the server is back; returns how to stop that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def _is_back_since_less_than(self, seconds: float) -> bool:
        return self._back_at is not None and self._clock() - self._back_at < seconds

    async def pause(self, seconds: float) -> None:
        """Wait for so long, or until the server is back."""
        back = asyncio.Event()
        stop = self.on_end(back.set)
        try:
            async with asyncio.timeout(seconds):
                await back.wait()
        except TimeoutError:
            pass
        finally:
            stop()


def doubled(first: timedelta, attempt: int, most: timedelta) -> timedelta:
    """How long to wait after an attempt, counted from 1: doubled by each, up to `most`."""
    wait: timedelta = first * 2 ** min(max(attempt - 1, 0), 30)
    return min(wait, most)


def level_of(error: BaseException) -> int:
    """The level to log a failure at that is tried again: DEBUG where its server is said to be away already."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LevelogError) and cause.is_told:
            return logging.DEBUG
        cause = cause.__cause__
    return logging.WARNING
