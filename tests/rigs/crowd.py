"""Calls that stand still, and are counted, until they are let out."""

import threading
from contextlib import suppress

from rigs.waiting import until


class Crowd:
    """Counts the calls that run at a time; each stands still until one more may leave."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._doors = threading.Semaphore(0)
        self.running = self.most = self.came = 0

    def enter(self) -> None:
        with self._lock:
            self.running, self.came = self.running + 1, self.came + 1
            self.most = max(self.most, self.running)

    def leave(self) -> None:
        with self._lock:
            self.running -= 1

    def stand(self) -> None:
        """Stay in a thread, and leave."""
        self.enter()
        try:
            self._doors.acquire(timeout=240)
        finally:
            self.leave()

    async def stand_in_loop(self) -> None:
        """The same in the event loop."""
        self.enter()
        try:
            await until(self._is_let_out, "a way out", seconds=240, pause=0.001)
        finally:
            self.leave()

    def let_out(self, count: int = 1) -> None:
        self._doors.release(count)

    async def come_to(self, *, running: int, came: int) -> None:
        """Wait until so many run, of so many that came."""

        async def is_so() -> bool:
            return (self.running, self.came) == (running, came)

        with suppress(TimeoutError):
            await until(is_so, "as many calls as may run")
        assert (self.running, self.came) == (running, came)

    async def _is_let_out(self) -> bool:
        return self._doors.acquire(blocking=False)
