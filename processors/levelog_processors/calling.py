"""Calling reconcile functions, and checking that what they give are intents."""

from collections.abc import AsyncIterable, Awaitable, Iterable, Mapping
from typing import Any

from levelog.calling import FunctionCaller
from levelog.faults import HandlerFault
from levelog.handlers import ReconcileHandler
from levelog.injection import about
from levelog.intents import Intent
from levelog_store.rows import ViewParent


class Caller(FunctionCaller):
    """Calls reconcile functions for levels, at most one at a time for each level."""

    async def call(self, level: ViewParent, handler: ReconcileHandler, arguments: Mapping[str, Any]) -> list[Intent]:
        """Call a function and return its intents.

        Raises what it raises, and HandlerFault if it takes longer than its time limit, or gives anything but intents.
        """
        about(object=level[1], view=level[0])

        def call() -> Any:
            result = handler.function(**arguments)
            return _gathered(result) if isinstance(result, AsyncIterable | Awaitable) else _in_full(result)

        return _intents(await self.run(level, call, handler.timeout, is_async=handler.is_async))


async def _gathered(result: AsyncIterable[Any] | Awaitable[Any]) -> Any:
    return [each async for each in result] if isinstance(result, AsyncIterable) else _in_full(await result)


def _in_full(result: Any) -> Any:
    """Run a generator to its end, where its function runs."""
    is_generator = isinstance(result, Iterable) and not isinstance(result, Mapping | str | bytes | Intent)
    return list(result) if is_generator else result


def _intents(result: Any) -> list[Intent]:
    """What a function gave, checked. Raises HandlerFault that says what to write instead."""
    if result is None:
        return []
    if isinstance(result, Intent):
        raise HandlerFault(f"returned one intent ({result.verb} {result.name}): yield it, or return a list")
    if isinstance(result, Mapping):
        raise HandlerFault("returned a mapping: yield intents, and wrap a manifest in apply(…)")
    if not isinstance(result, list):
        raise HandlerFault(f"returned {_kind(result)}: yield intents, or return a list of them")
    for each in result:
        if isinstance(each, Intent):
            continue
        if isinstance(each, Mapping):
            raise HandlerFault("yielded a mapping, which is not an intent: wrap a manifest in apply(…)")
        raise HandlerFault(f"yielded {_kind(each)}, which is not an intent: apply(…), patch(…), delete(…) make one")
    return result


def _kind(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
