"""Kopf beside levelog, in an environment of its own: `make bench` makes it, and without it Kopf is left out."""

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bench.servers import Servers
from rigs.processes import Process

PROGRAM: Final = Path(__file__).parents[1] / ".venv-kopf/bin/kopf"
OPERATORS: Final = Path(__file__).parent / "operators"


def is_installed() -> bool:
    """Tell whether Kopf's environment is there."""
    return PROGRAM.exists()


class Kopf:
    """One `kopf run`, standalone, with uvloop as its command has it; used as `with Kopf(servers, file, variant)`."""

    def __init__(self, servers: Servers, file: str, variant: str = "") -> None:
        self._servers = servers
        self._file = OPERATORS / file
        self._variant = variant
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="levelog-bench-")))
        self._calls = folder / "calls"
        self._calls.touch()
        kubeconfig = str(self._servers.control_plane.kubeconfig)
        env = {**os.environ, "KUBECONFIG": kubeconfig, "BENCH_VARIANT": self._variant, "BENCH_CALLS": str(self._calls)}
        command: list[str | Path] = [PROGRAM, "run", "--standalone", "--all-namespaces", "--quiet", self._file]
        self._process = Process(command, folder / "kopf.log", env=env, folder=folder)
        self._stack.callback(self._process.stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def check(self) -> None:
        """Raise what the process ended with, if it did."""
        self._process.check()

    @property
    def calls(self) -> int:
        """Calls of handlers so far, as the handlers note them."""
        return self._calls.stat().st_size
