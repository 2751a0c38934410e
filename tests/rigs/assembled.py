"""What is made of several rigs: they are opened together, and all of them closed whatever happens."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack, suppress
from typing import Any, Self


class Assembled(ABC):
    """Used as `async with`: what `_open` enters is left at the end in reverse order, or at once if `_open` fails."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._opened = stack.pop_all()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._opened.__aexit__(*error)

    @abstractmethod
    async def _open(self, stack: AsyncExitStack) -> None:
        """Enter the parts into the stack."""


async def cancel(task: asyncio.Task[Any]) -> None:
    """End a task; raises what it has failed with."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
