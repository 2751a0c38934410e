"""Errors of Kopf handlers: which are retried, how often and for how long."""

import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, ClassVar, NamedTuple

import msgspec

from levelog.effects import GiveUp, Retry
from levelog.layers import described


class TemporaryError(Retry):
    """Raised by a handler that is to be called again, `delay` seconds later; None: at once."""

    is_limited: ClassVar[bool] = False

    def __init__(self, message: str = "", delay: float | timedelta | None = 60) -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay or 0
        super().__init__(message, delay=timedelta(seconds=seconds))


class PermanentError(GiveUp):
    """Raised by a handler that is not to be called again for this state of the object."""


class InnerPending(Retry):
    """Some handlers inside of one have to be called again."""

    is_limited: ClassVar[bool] = False


class HandlerTimeoutError(PermanentError):
    """A handler has been tried for longer than its `timeout`."""


class HandlerRetriesError(PermanentError):
    """A handler was called as often as its `retries` say."""


class ErrorsMode(Enum):
    """What an error means that is neither TemporaryError nor PermanentError."""

    IGNORED = "ignored"
    TEMPORARY = "temporary"
    PERMANENT = "permanent"


class TryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How often a handler is called, and for how long."""

    errors: ErrorsMode = ErrorsMode.TEMPORARY
    timeout: timedelta | None = None
    """Time limit since the first call was decided on; an async function is cancelled in its middle then, too."""
    retries: int | None = None
    """How often it is called in all; None: for ever."""

    @property
    def again(self) -> int | None:
        """How often it is called again after an error; None: for ever."""
        if self.errors is ErrorsMode.PERMANENT:
            return 0
        return None if self.retries is None else self.retries - 1


class Consequence(NamedTuple):
    """What follows from an error of a call."""

    error: Exception
    is_final: bool
    """The function is not called again."""
    delay: timedelta = timedelta(0)
    """Until it is."""
    is_odd: bool = False
    """The error is neither a TemporaryError nor a PermanentError."""
    is_ignored: bool = False

    def __str__(self) -> str:
        return described(self.error)


def judged(raised: Exception, limits: TryLimits, calls: int, backoff: timedelta) -> Consequence:
    """What follows from what a function has raised, which was called so many times."""
    error = meant(raised)
    delay = (error.asked or timedelta(0)) if isinstance(error, Retry) else backoff
    if isinstance(error, InnerPending):
        return Consequence(error, is_final=False, delay=delay)
    is_odd = not isinstance(error, Retry | GiveUp)
    is_ignored = is_odd and limits.errors is ErrorsMode.IGNORED
    if isinstance(error, GiveUp) or (is_odd and limits.errors is not ErrorsMode.TEMPORARY):
        return Consequence(error, is_final=True, is_odd=is_odd, is_ignored=is_ignored)
    if limits.retries is None or calls < limits.retries:
        return Consequence(error, is_final=False, delay=delay, is_odd=is_odd)
    if not is_odd:
        error = HandlerRetriesError(f"has exceeded {limits.retries} retries: {described(error)}")
    return Consequence(error, is_final=True, is_odd=is_odd)


def pause_of_hook(
    raised: Exception, limits: TryLimits, backoff: timedelta, kwargs: Mapping[str, Any]
) -> timedelta | None:
    """How long to wait until a hook is called again that has raised; None: its failure is ignored.

    `kwargs` are the arguments of the call. Raises what ends the hook.
    """
    found, logger = judged(raised, limits, kwargs["retry"] + 1, backoff), kwargs["logger"]
    if found.is_ignored:
        logger.error("failed, which is ignored", exc_info=raised)
        return None
    if found.is_final:
        raise found.error from found.error.__cause__
    if limits.timeout is not None and datetime.now(UTC) + found.delay - kwargs["started"] > limits.timeout:
        raise HandlerTimeoutError(f"has timed out after {limits.timeout}: {found.error}") from found.error
    logger.warning("is called again in %s: %s", found.delay, found)
    return found.delay


def meant(error: Exception) -> Exception:
    """The error, or what it is here if it is one of an installed Kopf, which modules that nobody has changed raise."""
    if isinstance(error, Retry | GiveUp):
        return error
    kopf: Any = sys.modules.get("kopf")
    made: Exception
    if isinstance(error, getattr(kopf, "TemporaryError", ())):
        made = TemporaryError(str(error), getattr(error, "delay", None))
    elif isinstance(error, getattr(kopf, "PermanentError", ())):
        made = PermanentError(str(error))
    else:
        return error
    made.__cause__ = error
    return made
