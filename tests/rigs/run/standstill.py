"""Ending a run in which no test ends any more, from outside of the workers: one may be deaf to its own time limits."""

import os
import signal
import sys
import threading
from time import monotonic
from typing import Any, Final

import pytest

STANDSTILL_SECONDS: Final = 960.0  # the longest time limit of a test is 900
_LOOK_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 60.0


class Standstill:
    """A plugin for the process that hands tests to workers.

    When no test begins or ends for so long, it names those under way, and ends the workers, which print where they are.
    xdist reports their tests as failed, and goes on; if it does not, the whole run is ended with status 1.
    """

    def __init__(self, seconds: float = STANDSTILL_SECONDS) -> None:
        self._seconds = seconds
        self._under_way: set[str] = set()
        self._workers: list[int] = []
        self._moved_at = monotonic()
        self._is_over = threading.Event()

    def pytest_sessionstart(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._watch, name="standstill", daemon=True).start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._moved_at = monotonic()
        self._under_way.add(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test has ended."""
        self._moved_at = monotonic()
        self._under_way.discard(nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        """A worker is there."""
        self._workers.append(node.gateway._io.popen.pid)  # neither xdist nor execnet tells it otherwise

    def pytest_unconfigure(self) -> None:
        """The run is over."""
        self._is_over.set()

    def _watch(self) -> None:
        sys.settrace(None)  # a tracer may be what stands still
        while not self._is_over.wait(_LOOK_SECONDS):
            if monotonic() - self._moved_at >= self._seconds:
                self._end()

    def _end(self) -> None:
        names = ", ".join(sorted(self._under_way)) or "no test"
        print(f"\n\nno test began or ended for {self._seconds:g} s; under way: {names}", file=sys.stderr, flush=True)
        while self._workers:
            _abort(self._workers.pop())
        stood_at = self._moved_at
        if not self._is_over.wait(_PATIENCE_SECONDS) and self._moved_at == stood_at:
            os._exit(1)


def _abort(worker: int) -> None:
    """End it in a way in which it prints where its threads are."""
    try:
        os.kill(worker, signal.SIGABRT)
    except ProcessLookupError:
        return
