"""A server that a test starts, and stops whatever happens."""

from abc import ABC, abstractmethod
from typing import Self


class Server(ABC):
    """Used as `async with`: runs within it."""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    async def start(self) -> None:
        """Start what does not run, with the data that it has, and wait until it answers."""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL it; its data stay."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it, started or not, and remove its data."""
