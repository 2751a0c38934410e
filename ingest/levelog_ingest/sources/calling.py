"""Calls of a source's function: within its time, in a thread where it is not async, and with its faults as one kind."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Final

from levelog.calls.caller import LeftBehind, Threads
from levelog.calls.faults import HandlerFault, described
from levelog.handlers.sources import SOURCE_TIME, SourceHandler
from levelog.resources import External, Gone

_PATIENCE: Final = 5.0  # seconds for a cancelled function to end


class SourceFault(HandlerFault):
    """A source's function did not do what it is for; the message says it without the name of the function."""


class Calls:
    """Calls one source's function."""

    def __init__(self, source: SourceHandler) -> None:
        self._source = source
        self._threads = Threads(1)
        self._is_hanging = False

    async def poll(self) -> list[Any]:
        """Call the function for a whole set. Raises SourceFault from what it raised."""
        function = self._source.function
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            return await self._within_time(_gathered(self._source.begin))
        if self._is_hanging:
            raise SourceFault("is not called: it has not returned yet from a call that took too long")
        found: list[Any] = []

        def call() -> BaseException | None:
            try:
                found.extend(as_set(self._source.begin()))
            except BaseException as error:  # noqa: BLE001 - SystemExit, too, is the source's alone
                return error
            return None

        try:
            error = await self._threads.run(call, self._source.timeout or SOURCE_TIME, on_late=self._returned)
        except LeftBehind:
            self._is_hanging = True
            raise self._late() from None
        if error is not None:
            raise _fault(error) from error
        return found

    async def watch(self) -> AsyncGenerator[Any]:
        """Run the function, an async generator, and pass on what it yields. Raises SourceFault from what it raised."""
        said: asyncio.Queue[Any] = asyncio.Queue(1)

        async def pump() -> None:
            # In one task from end to end, since time limits and groups inside of it belong to their task.
            async with aclosing(self._source.begin()) as items:
                async for item in items:
                    await said.put(item)

        pumping = asyncio.create_task(_contained(pump()), name=str(self._source))
        getting: asyncio.Task[Any] | None = None
        try:
            while True:
                getting = asyncio.create_task(said.get())
                await asyncio.wait({pumping, getting}, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
                if getting.done():
                    yield getting.result()
                elif pumping.done():
                    _raise_fault(pumping)
                    return
                else:
                    raise self._late()
        finally:
            if getting is not None:
                getting.cancel()
            await _end(pumping)

    async def _within_time(self, work: Coroutine[Any, Any, list[Any]]) -> list[Any]:
        found: list[Any] = []

        async def gather() -> None:
            found.extend(await work)

        task = asyncio.create_task(_contained(gather()), name=str(self._source))
        try:
            await asyncio.wait({task}, timeout=self._seconds)
            if not task.done():
                raise self._late()
            _raise_fault(task)
        finally:
            await _end(task)
        return found

    @property
    def _seconds(self) -> float | None:
        return None if self._source.timeout is None else self._source.timeout.total_seconds()

    def _late(self) -> SourceFault:
        what = "gave no set" if self._source.every is not None else "yielded nothing"
        return SourceFault(f"{what} within {self._seconds or SOURCE_TIME.total_seconds():g} s")

    def _returned(self) -> None:
        self._is_hanging = False


def is_whole(item: object) -> bool:
    """Whether what a generator yielded is a set, and not one change."""
    return not isinstance(item, External | Gone)


def as_set(result: Any) -> list[Any]:
    """What was returned or yielded as a list. Raises SourceFault for what is no set of records."""
    if isinstance(result, External | Gone | str | bytes) or not hasattr(result, "__iter__"):
        raise SourceFault(f"gave something of class {type(result).__name__} where a set of records is needed")
    return list(result)


async def _gathered(begin: Callable[[], Any]) -> list[Any]:
    result = begin()
    if inspect.isasyncgen(result):
        async with aclosing(result) as items:
            return [item async for item in items]
    return as_set(await result)


async def _contained(work: Coroutine[Any, Any, None]) -> BaseException | None:
    """Return what the work raises: SystemExit raised by a task would end the process."""
    try:
        await work
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - all of it is the source's alone
        return error
    return None


def _raise_fault(task: asyncio.Task[BaseException | None]) -> None:
    if task.cancelled():
        raise SourceFault("was cancelled from within")
    if (error := task.result()) is not None:
        raise _fault(error) from error


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and give it a moment; one that goes on is left behind."""
    task.cancel()
    await asyncio.wait({task}, timeout=_PATIENCE)


def _fault(error: BaseException) -> SourceFault:
    return error if isinstance(error, SourceFault) else SourceFault(described(error))
