"""One call of a Kopf handler: its arguments, its patch and what it raises, in the words of levelog's effects."""

import inspect
import logging
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from levelog.compat.kopf.failures import ErrorsMode, HandlerRetriesError, TryLimits
from levelog.compat.kopf.given.events import posted
from levelog.compat.kopf.given.hierarchies import at_hand
from levelog.compat.kopf.given.keywords import Memo, Patch, call_keywords, object_keywords
from levelog.compat.kopf.given.lookups import KopfIndex, asked_for
from levelog.compat.kopf.patches import merge_patches
from levelog.compat.kopf.subhandlers import MOST_REMEMBERED, Calls, InnerPending, InnerProgress, registering
from levelog.compat.kopf.tuning import OperatorSettings
from levelog.effects import GiveUp, Retry, looked_up


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
        self.indices: list[str] = []
        """Names of those that the function looks up."""
        self._inner: dict[str, dict[str, InnerProgress]] = {}
        """How far the handlers are that one registers while it runs, by the key of its call."""
        self.is_async = inspect.iscoroutinefunction(function)

    def take_indices(self, names: Mapping[str, Any]) -> bool:
        """Look up those of these indices that the function has parameters for; tells whether one is new to it."""
        before, self.indices = self.indices, asked_for(self.function, names)
        return self.indices != before

    def object_arguments(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments about an object, without those of a call; filters get them too."""
        memo = _memos.setdefault(str(body["metadata"].get("uid", "")), Memo(self.memo))
        return {**object_keywords(body, memo, self.param, self.logger), "settings": self.settings}

    def run(self, body: Mapping[str, Any], key: str, retry: int, started: datetime, told: Mapping[str, Any]) -> Any:
        """Call a plain function; the merge patch of its object that it asks for, and Events, None for neither.

        It is a coroutine that gives that, where the function has registered others. Raises Retry and GiveUp as its
        user's errors mean them, and other errors of the function as they are.
        """
        call = self._begin(body, key, retry, started, told)
        try:
            with call.at_work():
                result = self.function(**call.kwargs)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            self._failed(error, call)
            return None
        return self._finish(call, result) if call.inner else self._end(call, result)

    async def run_async(
        self, body: Mapping[str, Any], key: str, retry: int, started: datetime, told: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Call an async function, as `run` does."""
        call = self._begin(body, key, retry, started, told)
        try:
            with call.at_work():
                result = await self.function(**call.kwargs)
                if call.inner:
                    await call.inner.run()
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            self._failed(error, call)
            return None
        return self._end(call, result)

    async def _finish(self, call: "_Attempt", result: Any) -> dict[str, Any] | None:
        """Call what a plain function has registered, in the loop."""
        try:
            with call.at_work():
                await call.inner.run()
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(error, call)
            return None
        return self._end(call, result)

    def _begin(
        self, body: Mapping[str, Any], key: str, retry: int, started: datetime, told: Mapping[str, Any]
    ) -> "_Attempt":
        patch = Patch()
        kwargs = {**self.object_arguments(body), **call_keywords(started, retry, patch), **told}
        found = looked_up.get({})
        for name in self.indices:
            kwargs.setdefault(name, KopfIndex(partial(_part, found, name)))
        while len(self._inner) > MOST_REMEMBERED:
            del self._inner[next(iter(self._inner))]
        progress = self._inner.get(key, {})
        return _Attempt(body, key, retry, patch, kwargs, Calls(f"{self.id}/", kwargs, progress, body), progress)

    def _end(self, call: "_Attempt", result: Any) -> dict[str, Any] | None:
        if result is not None:
            call.patch.status[self.id] = msgspec.to_builtins(result, enc_hook=dict)
        merged = call.patch.merged(call.body)
        for each in call.progress.values():
            merge_patches(merged, each.patch or {})
        self._inner.pop(call.key, None)
        return {"patch": merged, "events": call.events} if merged or call.events else None

    def _failed(self, error: Exception, call: "_Attempt") -> None:
        """Raise what the error means, or nothing where errors are ignored."""
        if isinstance(error, InnerPending):
            self._inner[call.key] = call.progress
            raise error
        is_last = self.limits.retries is not None and call.retry + 1 >= self.limits.retries
        if isinstance(error, GiveUp):
            self._inner.pop(call.key, None)
            raise error
        if not isinstance(error, Retry):
            if self.limits.errors is ErrorsMode.IGNORED:
                self._inner.pop(call.key, None)
                self.logger.error("%s failed, which is ignored", self.id, exc_info=error)
                return
            if self.limits.errors is ErrorsMode.PERMANENT:
                is_last = True
        if is_last:
            self._inner.pop(call.key, None)
            if isinstance(error, Retry):
                raise HandlerRetriesError(f"{self.id} has exceeded {self.limits.retries} retries: {error}") from error
        raise error


class _Attempt:
    """What belongs to one call."""

    def __init__(
        self,
        body: Mapping[str, Any],
        key: str,
        retry: int,
        patch: Patch,
        kwargs: dict[str, Any],
        inner: Calls,
        progress: dict[str, InnerProgress],
    ) -> None:
        self.body = body
        self.key = key
        self.retry = retry
        self.patch = patch
        self.kwargs = kwargs
        self.inner = inner
        self.progress = progress
        self.events: list[list[str]] = []

    @contextmanager
    def at_work(self) -> Generator[None]:
        """Tell what is called from here on which object it is for."""
        tokens = at_hand.set(self.body), posted.set(self.events)
        try:
            with registering(self.inner):
                yield
        finally:
            at_hand.reset(tokens[0])
            posted.reset(tokens[1])


def stand_for(made: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Have errors of a function name the place in its user's, which it calls; its signature stays its own."""
    there: Any = made
    there.__signature__ = inspect.signature(made)
    there.__wrapped__ = function


def _part(found: Mapping[str, Mapping[Any, Collection[Any]]], name: str) -> Mapping[Any, Collection[Any]]:
    return found.get(name, {})


_memos: Final[dict[str, Memo]] = {}


def forget(body: Mapping[str, Any]) -> None:
    """Drop what is known of an object that is gone."""
    _memos.pop(str(body["metadata"].get("uid", "")), None)
