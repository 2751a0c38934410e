"""Processes of levelog that are started again when they end, as Kubernetes does."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from rigs.assembled import cancel
from rigs.levelog import Levelog, Running

ROLES: Final = {"ingest": "ingest", "process-1": "process", "process-2": "process", "actuate": "actuate"}
"""The command of each process; they share nothing but the servers."""
FIRST_PAUSE: Final = 10.0
MOST_PAUSE: Final = 300.0
"""Seconds; Kubernetes starts a container at once, then after 10 s, 20 s and so on, up to 5 minutes."""
_POLL_SECONDS: Final = 0.1


class Line(NamedTuple):
    """A line that a process has logged."""

    process: str
    level: str
    message: str


class Supervised:
    """Starts the processes, and starts each again when it ends.

    Limits: no liveness probe ends a process; `settled` stands for the ten minutes after which Kubernetes forgets how
    often one has ended. `ended` is how processes ended that nobody killed.
    """

    def __init__(self, levelog: Levelog, operator_file: Path) -> None:
        self.ended: list[str] = []
        self._levelog = levelog
        self._operator_file = operator_file
        self._running: dict[str, Running] = {}
        self._restarts: dict[str, int] = {}
        self._due: dict[str, float] = {}
        self._read: dict[Path, int] = {}
        self._logs: list[tuple[str, Path]] = []
        self._killed: set[int] = set()
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        for name in ROLES:
            self._start(name)
        self._watching = asyncio.create_task(self._watch(), name="supervisor")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watching is not None:
            await cancel(self._watching)
        for running in self._running.values():
            running.kill()

    @property
    def away(self) -> list[str]:
        """Names of those that do not run now."""
        return [name for name, running in self._running.items() if not running.is_running]

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._killed.add(self._running[name].pid)
        self._running[name].kill()

    def pause(self, name: str) -> int:
        """SIGSTOP; returns the process id to go on with."""
        pid = self._running[name].pid
        os.kill(pid, signal.SIGSTOP)
        return pid

    def resume(self, name: str, pid: int) -> None:
        """SIGCONT, if it is still there."""
        if self._running[name].pid == pid and self._running[name].is_running:
            os.kill(pid, signal.SIGCONT)

    def settle(self) -> None:
        """Forget how often processes have ended."""
        self._restarts.clear()

    def new_lines(self) -> list[Line]:
        """What all processes have logged since this was asked last; warnings and worse."""
        found: list[Line] = []
        for name, log in self._logs:
            with log.open("rb") as file:
                file.seek(self._read.get(log, 0))
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read[log] = self._read.get(log, 0) + len(whole) + len(newline)
            found.extend(line for each in whole.splitlines() if (line := _line(name, each)) is not None)
        return found

    def _start(self, name: str) -> None:
        running = self._levelog.start(ROLES[name], self._operator_file)
        self._running[name] = running
        self._logs.append((name, running.log))

    async def _watch(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            for name in self.away:
                if name not in self._due:
                    self._note(name)
                    count = self._restarts[name] = self._restarts.get(name, 0) + 1
                    pause = 0.0 if count == 1 else min(FIRST_PAUSE * 2 ** (count - 2), MOST_PAUSE)
                    self._due[name] = clock() + pause
                if clock() >= self._due[name]:
                    del self._due[name]
                    self._start(name)
            await asyncio.sleep(_POLL_SECONDS)

    def _note(self, name: str) -> None:
        running = self._running[name]
        if running.pid not in self._killed:
            self.ended.append(f"{name}: {running.log_tail(1)[:300]}")


def _line(process: str, raw: bytes) -> Line | None:
    try:
        found: dict[str, Any] = json.loads(raw)
    except ValueError:
        return Line(process, "error", raw.decode(errors="replace"))
    level = str(found.get("level", "")).lower()
    return Line(process, level, str(found.get("message", ""))) if level in {"warning", "error", "critical"} else None
