"""A command on a terminal of its own, as somebody sits before it."""

import asyncio
import codecs
import os
import pty
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from rigs.preloaded import Preloaded

DEADLINE_SECONDS: Final = 120.0  # an idle machine takes one
_PATIENCE_SECONDS: Final = 2.0


class Tty:
    """The terminal, from the side of the keyboard."""

    def __init__(self, keyboard: int, process: Preloaded) -> None:
        self._keyboard = keyboard
        self._process = process
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # what is read may end within a character
        self._has_more = asyncio.Event()
        self.printed = ""
        """What was printed since the words that were awaited last."""
        asyncio.get_running_loop().add_reader(keyboard, self._take)

    async def says(self, words: str, *, within: float = DEADLINE_SECONDS) -> str:
        """Wait until it prints some words; returns what came before them."""
        async with asyncio.timeout(within):
            while words not in self.printed:
                self._has_more.clear()
                await self._has_more.wait()
        before, _, self.printed = self.printed.partition(words)
        return before

    async def insists(self, key: str, words: str) -> None:
        """Press a key until it prints some words.

        Python's readline does not notice a Ctrl-C that comes while it takes in an earlier key, until there is another.
        """
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                self.types(key)
                with suppress(TimeoutError):
                    await self.says(words, within=_PATIENCE_SECONDS)
                    return

    def types(self, text: str) -> None:
        """Press keys; `\\x03` is Ctrl-C."""
        os.write(self._keyboard, text.encode())

    async def ends(self) -> int:
        """Wait for the end of the command; returns its status."""
        return await self._process.ended()

    def leave(self) -> None:
        """Look at it no more."""
        asyncio.get_running_loop().remove_reader(self._keyboard)
        os.close(self._keyboard)

    def _take(self) -> None:
        try:
            self.printed += self._decoder.decode(os.read(self._keyboard, 4096))
        except OSError:  # nobody has the other side open any more
            asyncio.get_running_loop().remove_reader(self._keyboard)
        self._has_more.set()


@asynccontextmanager
async def on_terminal(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> AsyncGenerator[Tty]:
    """Run a command, as `Preloaded` takes it, on a terminal; it is killed with the context, if it has not ended."""
    keyboard, screen = pty.openpty()
    env = {**env, "TERM": "xterm"}
    process = Preloaded(command, env=env, folder=folder, files=[screen] * 3)
    os.close(screen)
    tty = Tty(keyboard, process)
    try:
        yield tty
    finally:
        if process.returncode is None:
            process.kill()
            await tty.ends()
        tty.leave()
