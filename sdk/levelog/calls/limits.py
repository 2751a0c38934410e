"""Limits of calls of users' functions, and how decorators are given them: of time, of attempts, of calls at once."""

from datetime import timedelta
from typing import Final, TypedDict

from msgspec import Struct

from levelog.selectors import FilterKeywords

CALL_TIME: Final = timedelta(seconds=10)
"""Default time limit of one call."""


class LimitKeywords(TypedDict, total=False):
    """Limits of calls; `op.on.create` says what they mean."""

    timeout: timedelta
    """Time limit of one call; 10 s."""
    retries: int | None
    backoff: timedelta | None
    give_up_after: timedelta | None
    max_concurrency: int | None


class CallKeywords(LimitKeywords, FilterKeywords, total=False):
    """Options of functions that are called for objects: limits, and filters."""


class CallLimits(Struct, frozen=True, kw_only=True):
    """How long a call may take, how often it is tried, and how many calls of the function run at a time."""

    timeout: timedelta = CALL_TIME
    retries: int | None = None
    """How often it is tried again after an error; None: for ever."""
    backoff: timedelta | None = None
    """Before it is; None: longer each time, up to what those who make the calls wait at most."""
    give_up_after: timedelta | None = None
    """Over all attempts, since the call was decided or due, or its record was made; None: never."""
    max_concurrency: int | None = None
    """Calls that run at a time in one process; None: as many as there is room for."""

    def within(self, general: "CallLimits") -> "CallLimits":
        """These limits; where they say nothing of attempts, the general ones."""
        return CallLimits(
            timeout=self.timeout,
            retries=general.retries if self.retries is None else self.retries,
            backoff=self.backoff or general.backoff,
            give_up_after=self.give_up_after or general.give_up_after,
            max_concurrency=self.max_concurrency,
        )

    @property
    def out_of_time(self) -> str:
        """The recorded error of a call that exceeded its time."""
        return f"it is given up {self.give_up_after} after it was decided"


NO_LIMITS: Final = CallLimits()
