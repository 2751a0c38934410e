"""One call of a Kopf handler: its arguments, its patch and what it raises, in the words of levelog's effects."""

import inspect
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final

import msgspec

from levelog.compat.kopf.events import posted
from levelog.compat.kopf.hierarchies import at_hand
from levelog.compat.kopf.keywords import Memo, Patch, call_keywords, object_keywords
from levelog.compat.kopf.tuning import OperatorSettings
from levelog.effects import GiveUp, Retry


class TemporaryError(Retry):
    """Raised by a handler that is to be called again, `delay` seconds later; None: at once."""

    def __init__(self, message: str = "", delay: float | timedelta | None = 60) -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay or 0
        super().__init__(message, delay=timedelta(seconds=seconds))


class PermanentError(GiveUp):
    """Raised by a handler that is not to be called again for this state of the object."""


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
    """From the first call on; an async function is cancelled in its middle after that long too."""
    retries: int | None = None
    """How often it is called in all; None: for ever."""


class Attempts:
    """Calls of one function for objects, each with what it is tried the how manieth time for."""

    def __init__(
        self,
        handler_id: str,
        function: Callable[..., Any],
        limits: TryLimits,
        logger: logging.Logger,
        param: Any,
        settings: OperatorSettings,
        memo: Memo,
    ) -> None:
        """`memo` is what start-up handlers have put down; an object's begins as a copy of it."""
        self.id = handler_id
        self.function = function
        self.limits = limits
        self.logger = logger
        self.param = param
        self.settings = settings
        self.memo = memo
        self._began: dict[str, datetime] = {}
        self.is_async = inspect.iscoroutinefunction(function)

    def object_arguments(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments about an object, without those of a call; filters get them too."""
        memo = _memos.setdefault(str(body["metadata"].get("uid", "")), Memo(self.memo))
        return {**object_keywords(body, memo, self.param, self.logger), "settings": self.settings}

    def run(self, body: Mapping[str, Any], key: str, retry: int, told: Mapping[str, Any]) -> dict[str, Any] | None:
        """Call a plain function; the merge patch of its object that it asks for, and Events, None for neither.

        Raises Retry and GiveUp as its user's errors mean them, and other errors of the function as they are.
        """
        patch, kwargs = self._begin(body, key, retry, told)
        tokens = at_hand.set(body), posted.set([])
        try:
            return self._end(body, key, patch, self.function(**kwargs))
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            self._failed(error, key, retry)
            return None
        finally:
            at_hand.reset(tokens[0])
            posted.reset(tokens[1])

    async def run_async(
        self, body: Mapping[str, Any], key: str, retry: int, told: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Call an async function, as `run` does."""
        patch, kwargs = self._begin(body, key, retry, told)
        tokens = at_hand.set(body), posted.set([])
        try:
            return self._end(body, key, patch, await self.function(**kwargs))
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            self._failed(error, key, retry)
            return None
        finally:
            at_hand.reset(tokens[0])
            posted.reset(tokens[1])

    def _begin(
        self, body: Mapping[str, Any], key: str, retry: int, told: Mapping[str, Any]
    ) -> tuple[Patch, dict[str, Any]]:
        patch = Patch()
        began = self._began.setdefault(key, datetime.now(UTC))
        if self.limits.timeout is not None and datetime.now(UTC) - began > self.limits.timeout:
            del self._began[key]
            raise HandlerTimeoutError(f"{self.id} has timed out after {self.limits.timeout}")
        return patch, {**self.object_arguments(body), **call_keywords(began, retry, patch), **told}

    def _end(self, body: Mapping[str, Any], key: str, patch: Patch, result: Any) -> dict[str, Any] | None:
        if result is not None:
            patch.status[self.id] = msgspec.to_builtins(result, enc_hook=dict)
        merged, events = patch.merged(body), posted.get()
        self._began.pop(key, None)
        return {"patch": merged, "events": events or []} if merged or events else None

    def _failed(self, error: Exception, key: str, retry: int) -> None:
        """Raise what the error means, or nothing where errors are ignored."""
        is_last = self.limits.retries is not None and retry + 1 >= self.limits.retries
        if isinstance(error, GiveUp):
            self._began.pop(key, None)
            raise error
        if not isinstance(error, Retry):
            if self.limits.errors is ErrorsMode.IGNORED:
                self._began.pop(key, None)
                self.logger.error("%s failed, which is ignored", self.id, exc_info=error)
                return
            if self.limits.errors is ErrorsMode.PERMANENT:
                is_last = True
        if is_last:
            self._began.pop(key, None)
            if isinstance(error, Retry):
                raise HandlerRetriesError(f"{self.id} has exceeded {self.limits.retries} retries: {error}") from error
        raise error


_memos: Final[dict[str, Memo]] = {}


def forget(body: Mapping[str, Any]) -> None:
    """Drop what is known of an object that is gone."""
    _memos.pop(str(body["metadata"].get("uid", "")), None)
