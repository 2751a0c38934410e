"""A test leaves no thread behind, which could do or hold up anything in the next one, and logs as they were."""

import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from time import monotonic
from typing import Final

import pytest

_PATIENCE_SECONDS: Final = 30.0
_END_WITH_THE_PROCESS: Final = {"levelog watchdog"}


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Fails the test that a new thread outlives."""
    before = set(threading.enumerate())
    yield
    until = monotonic() + _PATIENCE_SECONDS
    left = [thread for thread in threading.enumerate() if thread not in before | {threading.current_thread()}]
    for thread in left:
        if thread.name not in _END_WITH_THE_PROCESS:
            thread.join(max(0.0, until - monotonic()))
            assert not thread.is_alive(), f"thread {thread.name} is left behind, at\n{_place(thread)}"


@pytest.fixture(autouse=True)
def logs_are_as_before() -> Iterator[None]:
    """Undoes what a command that ran in this process did to the loggers of all."""
    handlers, levels = logging.root.handlers[:], {each: each.level for each in _loggers()}
    yield
    logging.root.handlers[:] = handlers
    for logger in _loggers():
        if logger.level != (level := levels.get(logger, logging.NOTSET)):
            logger.setLevel(level)
    logging.captureWarnings(capture=False)


def _loggers() -> list[logging.Logger]:
    return [logging.root, *map(logging.getLogger, list(logging.root.manager.loggerDict))]


def _place(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)  # pyright: ignore[reportPrivateUsage]  # public by its docs
    return "".join(traceback.format_stack(frame)[-3:]) if frame else "an unknown place"
