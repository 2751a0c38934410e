"""One call of a Kopf handler: its arguments, its patch, and its errors as those of levelog's effects."""

import inspect
import logging
from collections.abc import Callable, Collection, Coroutine, Generator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec

from levelog.compat.kopf.failures import InnerPending, PermanentError, TryLimits, judged
from levelog.compat.kopf.given.events import posted
from levelog.compat.kopf.given.hierarchies import at_hand
from levelog.compat.kopf.given.keywords import Patch, call_keywords, object_keywords
from levelog.compat.kopf.given.lookups import KopfIndex, asked_for
from levelog.compat.kopf.given.memos import Memo, memo_of
from levelog.compat.kopf.given.words import served_resource
from levelog.compat.kopf.options import Declaration
from levelog.compat.kopf.patches import merge_patches
from levelog.compat.kopf.subhandlers import Calls, InnerProgress, registering
from levelog.compat.kopf.tuning import OperatorSettings
from levelog.effects import Call, looked_up
from levelog.handlers.timers import is_ahead

LEFT: Final = "left"
"""Field in the result of a call that raised: what the next one goes on from."""


class Left(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call that raised leaves to the next one, besides its patch and Events."""

    began: datetime
    """When the first one was decided on."""
    retry: int = 0
    """How often the function was called."""
    error: str = ""
    delay: timedelta = timedelta(0)
    """After which it is called again."""
    is_over: bool = False
    """It is not called again."""
    inner: dict[str, InnerProgress] = {}
    """How far the handlers are that it registers while it runs, by their ids."""


def left(result: Mapping[str, Any] | None) -> Left | None:
    """What the call has left whose result it is; None: it did not raise."""
    return msgspec.convert(result[LEFT], Left) if result and LEFT in result else None


def next_call(call: Call[Any, Any], limits: TryLimits, now: datetime) -> tuple[datetime, Left] | None:
    """When the function is called again, and what the last call has left; None: it did not raise.

    If its time is over by then, it is not called again. If the clock of the last call was ahead, it is due `now`.
    """
    found = left(call.result)
    if found is None:
        return None
    due = now if is_ahead(call.called_at, now, found.delay) else call.called_at + found.delay
    if not found.is_over and limits.timeout is not None and due >= found.began + limits.timeout:
        error = f"given up {limits.timeout} after it was decided: {found.error}"
        return due, msgspec.structs.replace(found, is_over=True, error=error)
    return due, found


class Attempts:
    """Calls one function of a Kopf file, for any of its objects."""

    def __init__(
        self, handler_id: str, declared: Declaration, logger: logging.Logger, settings: OperatorSettings, memo: Memo
    ) -> None:
        """`memo` is what start-up handlers have put down; an object's begins as a copy of it."""
        self.id = handler_id
        self.declared = declared
        self.function = declared.function
        self.logger = logger
        self.settings = settings
        self.memo = memo
        self.is_recorded = True
        """Its calls leave results; else they raise what the function raises."""
        self.indices: list[str] = []
        """Names of those that the function looks up."""
        self.resource = declared.served or served_resource(declared.cls.resource_type)
        self.is_async = inspect.iscoroutinefunction(declared.function)

    def take_indices(self, names: Mapping[str, Any]) -> bool:
        """Look up those of these indices that the function has parameters for; tells whether one is new to it."""
        before, self.indices = self.indices, asked_for(self.function, names)
        return self.indices != before

    def object_arguments(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments about an object, without those of a call; filters get them too."""
        return {
            **object_keywords(body, memo_of(body, self.memo), self.declared.param, self.logger),
            "settings": self.settings,
            "resource": self.resource,
        }

    def run(
        self,
        body: Mapping[str, Any],
        retry: int,
        started: datetime,
        told: Mapping[str, Any],
        carried: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the function; the merge patch of its object that it asks for, and Events, None for neither.

        It is a coroutine that gives that, where the function is async or has registered others. The result of a call
        that raises has what `left` reads, too. `carried` is that of the call before.
        """
        before = msgspec.convert(carried, Left) if carried is not None else Left(began=started)
        if before.is_over:
            raise PermanentError(before.error)
        patch, retry = Patch(), before.retry + retry
        kwargs = {**self.object_arguments(body), **call_keywords(before.began, retry, patch), **told}
        found = looked_up.get({})
        for name in self.indices:
            kwargs.setdefault(name, KopfIndex(partial(_part, found, name)))
        call = _Attempt(body, retry, patch, kwargs, Calls(f"{self.id}/", kwargs, before.inner, body), before)
        try:
            with call.at_work():
                result = self.function(**kwargs)
            return (
                self._finish(call, result) if call.inner or isinstance(result, Coroutine) else self._end(call, result)
            )
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            return self._failed(error, call)

    async def _finish(self, call: "_Attempt", result: Any) -> dict[str, Any] | None:
        """Wait for what the function does, and call what it has registered, in the loop."""
        try:
            with call.at_work():
                result = await result if isinstance(result, Coroutine) else result
                if call.inner:
                    await call.inner.run()
            return self._end(call, result)
        except Exception as error:  # noqa: BLE001 - as above
            return self._failed(error, call)

    def _end(self, call: "_Attempt", result: Any) -> dict[str, Any] | None:
        if result is not None:
            call.patch.status[self.id] = msgspec.to_builtins(result, enc_hook=dict)
        return call.writes()

    def _failed(self, error: Exception, call: "_Attempt") -> dict[str, Any] | None:
        """The result of a call that raised, where results are recorded."""
        if not self.is_recorded:
            raise error
        found = judged(error, self.declared.limits, call.retry + 1, self.declared.backoff)
        if found.is_ignored:
            self.logger.error("%s failed, which is ignored", self.id, exc_info=error)
            return call.writes()
        if found.is_odd:
            self.logger.error("%s failed", self.id, exc_info=error)
        elif not isinstance(found.error, InnerPending):
            what = "gives up" if found.is_final else "is to be called again"
            self.logger.warning("%s %s: %s", self.id, what, found.error)
        left = Left(
            began=call.before.began,
            retry=call.retry + 1,
            error=str(found),
            delay=found.delay,
            is_over=found.is_final,
            inner=call.before.inner,
        )
        return {**(call.writes() or {}), LEFT: msgspec.to_builtins(left)}


class _Attempt(msgspec.Struct, eq=False):
    """What belongs to one call."""

    body: Mapping[str, Any]
    retry: int
    patch: Patch
    kwargs: dict[str, Any]
    inner: Calls
    before: Left
    events: list[list[str]] = []

    def writes(self) -> dict[str, Any] | None:
        """The patch and the Events that it asks for, with those of the handlers inside of it."""
        merged = self.patch.merged(self.body)
        for each in self.before.inner.values():
            merge_patches(merged, each.patch or {})
            each.patch = None
        return {"patch": merged, "events": self.events} if merged or self.events else None

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
