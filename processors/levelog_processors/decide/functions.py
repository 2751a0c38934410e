"""Calls reconcile functions, checks what they yield, and lets slow ones run beyond their batch.

What they asked for is given back as a `Round`; whether a round counts, and what is written, others say.
"""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from time import monotonic
from typing import Any, Final, TypeAlias

from msgspec import Struct

from levelog.calls.caller import FunctionCaller
from levelog.calls.faults import HandlerFault, fault_reason, tell_fault
from levelog.handlers.injection import Given, about
from levelog.handlers.viewhandlers import ReconcileHandler
from levelog.intents import Intent
from levelog_base.secrets.redaction import Redactor
from levelog_processors.decide.decisionrules import is_withheld, left_to_write, must_act
from levelog_processors.decide.facts import Outlook, Round
from levelog_processors.decide.writetargets import Aimed, aimed, refuse_stray
from levelog_store.rows import ViewParent

MOST_WRITES: Final = 10_000
"""Intents of one round; a generator is not asked for more."""


class Caller(FunctionCaller):
    """Calls reconcile functions for levels, at most one at a time for each level."""

    async def call(self, level: ViewParent, handler: ReconcileHandler, arguments: Mapping[str, Any]) -> list[Intent]:
        """Call a function and return its intents.

        Raises what the function raises, and HandlerFault if it exceeds its time limit, or yields anything but intents
        or too many.
        """
        about(object=level[1], view=level[0])

        def call() -> Any:
            result = handler.function(**arguments)
            return _gathered(result) if isinstance(result, AsyncIterable | Awaitable) else _in_full(result)

        return _intents(await self.run(level, call, handler.timeout, is_async=handler.is_async))


async def _gathered(result: AsyncIterable[Any] | Awaitable[Any]) -> Any:
    """As `_in_full`, of what an async function gives."""
    if not isinstance(result, AsyncIterable):
        return _in_full(await result)
    gathered: list[Any] = []
    async for each in result:
        gathered.append(each)
        if len(gathered) > MOST_WRITES:
            break
    return gathered


def _in_full(result: Any) -> Any:
    """Run a generator to its end, or until it has yielded too much, where its function runs."""
    is_generator = isinstance(result, Iterable) and not isinstance(result, Mapping | str | bytes | Intent)
    return list(islice(result, MOST_WRITES + 1)) if is_generator else result


def _intents(result: Any) -> list[Intent]:
    """What a function gave, checked. Raises HandlerFault that says what to write instead."""
    if result is None:
        return []
    if isinstance(result, Intent):
        return [result]
    if isinstance(result, Mapping):
        raise HandlerFault("returned a mapping: yield intents, and wrap a manifest in apply(…)")
    if not isinstance(result, list):
        raise HandlerFault(f"returned {_kind(result)}: yield intents, or return a list of them")
    if len(result) > MOST_WRITES:
        raise HandlerFault(f"asked for more than {MOST_WRITES:,} writes in one round")
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


PATIENCE: Final = timedelta(milliseconds=20)
"""How long a batch waits for its reconcile functions before it goes on without the slow ones."""
MOST_BEGUN: Final = 1024
"""Functions on their way at one time; with as many, no others are begun."""

Acted: TypeAlias = tuple[Outlook, Round | None]
"""A level that can be concluded, with its round if it has one."""


class _Begun(Struct, frozen=True):
    partition: int
    epoch: int
    task: asyncio.Task[Acted]
    at: float


class Acting:
    """Runs the reconcile functions of levels side by side; keeps those that outlast their batch.

    A level that is kept is not decided on again meanwhile; its wakeup stays in the tables until the function's outcome
    is written, so that a crash loses nothing.
    """

    def __init__(
        self, caller: Caller, *, patience: timedelta | None, redactor: Redactor, identity: Sequence[str]
    ) -> None:
        """`identity` is (cluster, application); it and the redactor's key seed what functions take for chance."""
        self.caller = caller
        self._redactor = redactor
        self._identity = identity
        self.patience = patience
        self._begun: dict[ViewParent, _Begun] = {}
        self.on_return: Callable[[], None] = lambda: None
        """Called when a function that outlasted its batch has returned."""

    def __contains__(self, level: ViewParent) -> bool:
        return level in self._begun

    def __len__(self) -> int:
        return len(self._begun)

    @property
    def ages(self) -> list[tuple[str, float]]:
        """The calls that have not returned: the view of each, and seconds since it was begun."""
        now = monotonic()
        return [(view, now - begun.at) for (view, _), begun in self._begun.items() if not begun.task.done()]

    def returned(self, epochs: Mapping[int, int]) -> list[Acted]:
        """Take the levels whose functions have returned, if their partitions are still under the same lease."""
        done = [level for level, begun in self._begun.items() if begun.task.done()]
        taken = [self._begun.pop(level) for level in done]
        acted = [(each, each.task.result()) for each in taken]
        return [got for each, got in acted if epochs.get(each.partition) == each.epoch]

    async def act(self, looks: Sequence[Outlook], epochs: Mapping[int, int]) -> list[Acted]:
        """Call the reconcile functions of the levels that must act; returns the levels that can be concluded now."""
        begun: dict[ViewParent, _Begun] = {}
        for look in looks:
            if must_act(look):
                partition = look.facts.wake.partition
                task = asyncio.create_task(self._acted(look), name="reconcile")
                begun[look.facts.name] = _Begun(partition, epochs[partition], task, monotonic())
        if begun:
            self._begun |= begun
            patience = None if self.patience is None else self.patience.total_seconds()
            try:
                await asyncio.wait([each.task for each in begun.values()], timeout=patience)
            finally:  # also if the lease changes meanwhile
                for each in begun.values():
                    if not each.task.done():
                        each.task.add_done_callback(lambda _: self.on_return())
        done: dict[ViewParent, Acted] = {}
        for level, each in begun.items():
            if each.task.done():
                del self._begun[level]
                done[level] = each.task.result()
        over = [look for look in looks if look.facts.name not in self._begun]
        return [done.get(look.facts.name, (look, None)) for look in over]

    async def close(self) -> None:
        """Cancel the calls under way; the next owner of the partition makes them again."""
        tasks = [begun.task for begun in self._begun.values()]
        self._begun.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.caller.close()

    async def _acted(self, look: Outlook) -> Acted:
        facts, handler = look.facts, look.facts.view.reconcile
        if handler is None:
            raise TypeError(f"view {facts.view.name} has no reconcile function")
        is_called = not self.caller.still_runs(facts.name)
        try:
            arguments = {handler.parent_parameter: handler.reader.read(facts.parent.body)}
            if look.level is not None:
                look.level.is_asked_for = facts.is_asked_for
            given: dict[Given, Any] = {Given.LEVEL: look.level, Given.NOW: facts.now, Given.WRITTEN: look.is_written}
            if Given.CHANCE in handler.given.given.values():
                about_round = facts.view.name, facts.parent.uid, str(facts.before.round + 1)
                given[Given.CHANCE] = self._redactor.chance((*self._identity, *about_round))
            arguments |= handler.given.arguments(given)
            asked = await self.caller.call(facts.name, handler, arguments)
            wanted: list[Aimed] = []
            for intent in asked:
                wanted.append(aimed(facts.view, facts.parent, intent))
                refuse_stray(facts.view, facts.parent, wanted[-1])
            left = left_to_write(look, wanted)
            withheld = [str(each.target) for each in left if is_withheld(look, each)]
            left = [each for each in left if not is_withheld(look, each)]
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything; only this level is concerned
            tell_fault("reconcile function", handler.name, handler.function, error, subject=facts.wake.parent)
            return look, Round(error=fault_reason("reconcile function", handler.name, error), is_called=is_called)
        return look, Round(intents=left, withheld=withheld, is_called=is_called)
