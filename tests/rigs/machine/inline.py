"""SQLite without aiosqlite's threads: a machine does one thing at a time, and the hops would take most of its time."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import aiosqlite.core


class _Inline:
    """Stands for the queue of a connection's thread: runs what is put into it."""

    def put_nowait(self, item: tuple[asyncio.Future[Any] | None, Callable[[], Any]]) -> None:
        """Run a function and resolve its future."""
        future, function = item
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 - whoever awaits the future gets it
            if future is not None:
                future.set_exception(error)
        else:
            if future is not None:
                future.set_result(result)


class _NoThread:
    """Stands for the thread."""

    daemon = True

    def __init__(self, **_: object) -> None: ...

    def start(self) -> None:
        """Start nothing."""


@contextmanager
def inline_sqlite() -> Generator[None]:
    """Connections that are opened meanwhile run their statements where they are asked to."""
    with patch.object(aiosqlite.core, "SimpleQueue", _Inline), patch.object(aiosqlite.core, "Thread", _NoThread):
        yield
