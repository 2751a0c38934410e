"""Waiting for a condition, never for a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, overload

T = TypeVar("T")


@overload
async def until(
    condition: Callable[[], Awaitable[T]],
    what: str,
    *,
    accept: Callable[[T], object] = ...,
    despite: type[Exception] | tuple[type[Exception], ...] = ...,
    seconds: float = ...,
    pause: float = ...,
) -> T: ...


@overload
async def until(condition: Callable[[], bool], what: str, *, seconds: float = ..., pause: float = ...) -> bool: ...


async def until(
    condition: Callable[[], Any],
    what: str,
    *,
    accept: Callable[[Any], object] = bool,
    despite: type[Exception] | tuple[type[Exception], ...] = (),
    seconds: float = 90.0,
    pause: float = 0.02,
) -> Any:
    """Ask until the answer is true, or one that `accept` takes, and return it.

    `what` completes the sentence "not seen within 90 s: ..." of the TimeoutError. The condition is asked at least once,
    and its exceptions are raised at once, but for those that it is asked again `despite`. A question that takes long is
    asked less often: it may hold up what it is about.
    """
    deadline = time.monotonic() + seconds
    while True:
        asked_at = time.monotonic()
        with suppress(*despite if isinstance(despite, tuple) else (despite,)):
            answer = condition()
            if isinstance(answer, Awaitable):
                answer = await answer
            if accept(answer):
                return answer
        answered_at = time.monotonic()
        if answered_at >= deadline:
            raise TimeoutError(f"not seen within {seconds:g} s: {what}")
        await asyncio.sleep(max(pause, 3 * (answered_at - asked_at)))
