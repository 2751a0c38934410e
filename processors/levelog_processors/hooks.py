"""Runs the hooks of the operators of one process: at its start, before anything is folded or sent, and at its end."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, Self, TypeAlias

from levelog.calls.caller import FunctionCaller
from levelog.calls.faults import described, tell_fault
from levelog.handlers.hooks import Hook
from levelog.indices import GiveIndex
from levelog_base.errors import HookFailed
from levelog_processors.program import Program

log = logging.getLogger(__name__)

TASK_END_TIME: Final = timedelta(seconds=5)
"""How long cancelled tasks of start-up hooks may take to clean up."""

Factory: TypeAlias = Callable[..., "asyncio.Future[Any]"]

_starting: ContextVar["Hook | None"] = ContextVar("levelog_starting", default=None)
"""The start-up hook to which what runs belongs; tasks inherit it from what makes them."""


class Lifecycle:
    """Used as `async with Lifecycle(program, live.index)`: start-up hooks run first, clean-up hooks last.

    The second argument makes the index of a name in the tables, `operator/index`, for values of a type.

    Raises HookFailed if a start-up hook raises or hangs; those after it do not run, all clean-up hooks do.
    """

    def __init__(self, program: Program, index: GiveIndex) -> None:
        self._hooks = [hook for operator in program.operators for hook in operator.on.registered]
        self._index = index
        self._caller = FunctionCaller(subject="this process")
        self._tasks: set[asyncio.Future[Any]] = set()
        """Made by start-up hooks, and by such tasks; those that have ended are gone."""
        self._factory: Factory | None = None

    async def __aenter__(self) -> Self:
        if self._hooks:
            self._follow_tasks()
        try:
            for hook in self._of("startup"):
                await self._run(hook)
                log.info("%s has run", hook, extra={"operator": hook.operator})
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    def _of(self, when: str) -> list[Hook]:
        return [hook for hook in self._hooks if hook.when == when]

    async def _end(self) -> None:
        await self._end_tasks()
        for hook in self._of("cleanup"):
            with suppress(HookFailed):  # the others have to run all the same
                await self._run(hook)
        await self._caller.close()
        if self._hooks:
            asyncio.get_running_loop().set_task_factory(self._factory)

    async def _run(self, hook: Hook) -> None:
        """Raises HookFailed, with a word in the log, from what the hook raises, or after its time."""
        arguments = hook.given.arguments({})
        arguments |= {name: self._index(f"{hook.operator}/{name}", kind) for name, kind in hook.indices.items()}
        try:
            await self._caller.run(id(hook), lambda: _called(hook, arguments), hook.timeout, is_async=hook.is_async)
        except Exception as error:
            tell_fault(f"{hook.when} hook", hook.function.__name__, hook.function, error, subject=hook.operator)
            raise HookFailed(f"{hook} failed: {described(error)}") from error

    def _follow_tasks(self) -> None:
        """Take note of the tasks that start-up hooks make."""
        loop = asyncio.get_running_loop()
        self._factory = before = loop.get_task_factory()

        def make(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> "asyncio.Future[Any]":
            task = before(loop, work, **options) if before else asyncio.Task(work, loop=loop, **options)
            if (hook := _starting.get()) is not None:
                self._tasks.add(task)
                task.add_done_callback(lambda done: self._forget(done, hook))
            return task

        loop.set_task_factory(make)

    def _forget(self, task: "asyncio.Future[Any]", hook: Hook) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the %s failed: %s", hook, described(error), extra={"operator": hook.operator})

    async def _end_tasks(self) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if not tasks:
            return
        _, left = await asyncio.wait(tasks, timeout=TASK_END_TIME.total_seconds())
        for task in left:
            name = task.get_name() if isinstance(task, asyncio.Task) else str(task)
            log.warning("the task %s goes on although it was cancelled", name)


def _called(hook: Hook, arguments: Mapping[str, Any]) -> Any:
    """Call a hook such that the tasks which it makes are known as its own."""
    if hook.when == "startup" and hook.is_async:
        _starting.set(hook)
    return hook.function(**arguments)
