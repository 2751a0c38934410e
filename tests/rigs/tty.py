"""A command on a terminal of its own, as somebody sits before it."""

import asyncio
import os
import pty
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

DEADLINE_SECONDS: Final = 120.0  # an idle machine takes one


class Tty:
    """The terminal, from the side of the keyboard."""

    def __init__(self, keyboard: int, process: Process) -> None:
        self._keyboard = keyboard
        self._process = process
        self.printed = ""
        """What was printed since the words that were awaited last."""

    async def says(self, words: str) -> str:
        """Wait until it prints some words; returns what came before them."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while words not in self.printed:
                self.printed += (await asyncio.to_thread(os.read, self._keyboard, 4096)).decode()
        before, _, self.printed = self.printed.partition(words)
        return before

    def types(self, text: str) -> None:
        """Press keys; `\\x03` is Ctrl-C."""
        os.write(self._keyboard, text.encode())

    async def ends(self) -> int:
        """Wait for the end of the command; returns its status."""
        return await self._process.wait()


@asynccontextmanager
async def on_terminal(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> AsyncGenerator[Tty]:
    """Run a command on a terminal; it is killed with the context, if it has not ended."""
    keyboard, screen = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={**env, "TERM": "xterm"},
        stdin=screen,
        stdout=screen,
        stderr=screen,
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(screen)
    try:
        yield Tty(keyboard, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(keyboard)


def _take_terminal() -> None:
    """Make the terminal on stdin the one whose Ctrl-C the process hears."""
    os.close(os.open(os.ttyname(0), os.O_RDWR))
