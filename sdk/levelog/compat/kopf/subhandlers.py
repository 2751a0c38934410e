"""Sub-handlers: registered while a handler runs, each called until it has succeeded or given up.

Which of them have ended is in the result of the call, from which the next one goes on.
"""

import asyncio
import inspect
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NoReturn

import msgspec

from levelog.compat.kopf.filters import Filters
from levelog.compat.kopf.given.keywords import Patch, call_keywords
from levelog.compat.kopf.handlererrors import InnerPending, TryLimits, judged
from levelog.compat.kopf.options import BACKOFF
from levelog.layers import Threads, containing
from levelog_base.errors import OperatorError


class InnerHandler(msgspec.Struct, frozen=True, kw_only=True):
    """A function that was registered while a handler ran."""

    id: str
    function: Callable[..., Any]
    limits: TryLimits = TryLimits()
    backoff: timedelta = BACKOFF
    param: Any = None
    filters: Filters = Filters()
    is_taken: Callable[[Mapping[str, Any]], bool] = lambda _: True
    """Tells by the arguments whether the field that it is of differs, or has the value."""


class InnerProgress(msgspec.Struct, omit_defaults=True):
    """How far one of them is."""

    began: datetime
    retry: int = 0
    wait: timedelta = timedelta(0)
    """How long it has to wait yet, when the handler around it is called again; none: it is due."""
    error: str = ""
    """Why it has to be called again."""
    is_over: bool = False
    patch: dict[str, Any] | None = None
    """Patch of its last call, until it is in the result of the handler around it."""


class Calls:
    """Sub-handlers that are registered while one handler runs; `progress` is that of its call."""

    def __init__(
        self, prefix: str, kwargs: Mapping[str, Any], progress: dict[str, InnerProgress], body: Mapping[str, Any]
    ) -> None:
        self.prefix = prefix
        self._kwargs = kwargs
        self._progress = progress
        self._body = body
        self._registered: dict[str, InnerHandler] = {}

    def __bool__(self) -> bool:
        return bool(self._registered)

    def add(self, handler: InnerHandler) -> None:
        """Register one. Raises OperatorError for a second one of its id."""
        if handler.id in self._registered:
            raise OperatorError(f"handler {handler.id}: is registered twice: give one of them another id=")
        self._registered[handler.id] = handler

    async def run(self) -> None:
        """Call those that are due. Raises InnerPending as long as one has to be called again."""
        waiting: dict[str, InnerProgress] = {}
        for handler in list(self._registered.values()):
            progress = self._progress.setdefault(handler.id, InnerProgress(began=datetime.now(UTC)))
            if not progress.is_over and not progress.wait:
                await self._call(handler, progress)
            if not progress.is_over:
                waiting[handler.id] = progress
        self._registered.clear()
        if waiting:
            first = min(waiting, key=lambda name: waiting[name].wait)
            least = waiting[first].wait
            for progress in waiting.values():
                progress.wait -= least
            raise InnerPending(f"{first} is to be called again: {waiting[first].error}", delay=least)

    async def _call(self, handler: InnerHandler, progress: InnerProgress) -> None:
        if handler.limits.timeout is not None and datetime.now(UTC) - progress.began > handler.limits.timeout:
            self._end(handler, progress, f"has timed out after {handler.limits.timeout}")
            return
        patch = Patch()
        told = {**self._kwargs, **call_keywords(progress.began, progress.retry, patch), "param": handler.param}
        if not handler.filters.take(told) or not handler.is_taken(told):
            progress.is_over = True
            return
        with registering(Calls(f"{handler.id}/", told, self._progress, self._body)) as inner:
            try:
                result = await _called(handler.function, told)
                if inner:
                    await inner.run()
                if result is not None:
                    patch.status[handler.id] = msgspec.to_builtins(result, enc_hook=dict)
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                progress.patch = patch.merged(self._body)
                self._failed(handler, progress, error)
                return
        progress.patch, progress.is_over = patch.merged(self._body), True

    def _failed(self, handler: InnerHandler, progress: InnerProgress, error: Exception) -> None:
        found = judged(error, handler.limits, progress.retry + 1, handler.backoff)
        if isinstance(found.error, InnerPending):
            progress.wait, progress.error = found.delay, str(found.error)
            return
        progress.retry += 1
        if found.is_odd:
            self._kwargs["logger"].error("%s failed", handler.id, exc_info=error)
        if found.is_final:
            self._end(handler, progress, str(found))
        else:
            progress.wait, progress.error = found.delay, str(found)

    def _end(self, handler: InnerHandler, progress: InnerProgress, why: str) -> None:
        """Leave one alone; the handler around it ends all the same, as in Kopf."""
        self._kwargs["logger"].error("%s is given up: %s", handler.id, why)
        progress.is_over = True


async def _called(function: Callable[..., Any], told: Mapping[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        with containing(asyncio.CancelledError):
            return await function(**told)
    work = asyncio.create_task(in_thread(partial(function, **told)))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:  # a thread cannot be ended: until it returns, the handler around it still runs
        await asyncio.wait({work})
        raise


async def in_thread(call: Callable[[], Any]) -> Any:
    """Call a function in a thread of its own, which ends with it; raises nothing that would end the process."""
    threads = Threads(1)
    try:
        return await threads.run(containing()(call))
    finally:
        threads.close()


_calls: Final[ContextVar[Calls | None]] = ContextVar("levelog_kopf_inner", default=None)


@contextmanager
def registering(calls: Calls) -> Generator[Calls]:
    """Have handlers that are registered from here on taken in."""
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)


def at_work(what: str) -> Calls:
    """The handler that runs now. Raises OperatorError where none does."""
    found = _calls.get()
    if found is None:
        raise OperatorError(f"{what}: is called inside of a change handler: nothing is handled here")
    return found


async def execute(
    *,
    fns: Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]] | None = None,
    handlers: Collection[Any] | None = None,
    registry: Any = None,
    lifecycle: Any = None,
    cause: Any = None,
) -> None:
    """Call what is registered, and these functions, now. Raises as long as one has to be called again.

    Raises OperatorError for what names Kopf's own objects: `handlers`, `registry`, `lifecycle` and `cause`.
    """
    for name, given in (("handlers", handlers), ("registry", registry), ("lifecycle", lifecycle), ("cause", cause)):
        if given is not None:
            _refuse(name)
    calls = at_work("kopf.execute")
    named = fns.items() if isinstance(fns, Mapping) else [(each.__name__, each) for each in fns or ()]
    for name, function in named:
        calls.add(InnerHandler(id=f"{calls.prefix}{name}", function=function))
    await calls.run()


def _refuse(option: str) -> NoReturn:
    raise OperatorError(f"kopf.execute: {option}= is of Kopf's own machinery: give functions, fns=[…]")


def merge_patches(first: dict[str, Any], then: Mapping[str, Any]) -> None:
    """Add a merge patch to another, in place."""
    for key, value in then.items():
        before = first.get(key)
        if isinstance(before, dict) and isinstance(value, Mapping):
            merge_patches(before, value)  # pyright: ignore[reportUnknownArgumentType]
        else:
            first[key] = value
