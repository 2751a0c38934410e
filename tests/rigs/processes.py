"""Child processes that never outlive the tests."""

import os
import pwd
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, Self, TypeAlias

from rigs.preloaded import Preloaded

Words: TypeAlias = Sequence[str | Path]
Env: TypeAlias = Mapping[str, str] | None
Child: TypeAlias = "subprocess.Popen[bytes] | Preloaded"

_ENDS_WITH_US: Final = ("setpriv", "--pdeathsig", "KILL", "--")
"""Becomes the program, which the kernel kills when the thread that started it has ended."""


class ProcessEnded(Exception):
    """A server ended although nobody asked it to; the message holds the end of its log."""


class Process:
    """A program that is killed when the process that started it ends, in whichever way (SIGKILL included).

    Used as `with`: it is killed at the end, too. Output goes to the end of `log`. `user` is the name of the account to
    run as, for the superuser only. The program's own children are not killed with it; what a thread starts ends with
    that thread.
    """

    def __init__(
        self,
        argv: Words,
        log: Path,
        *,
        env: Env = None,
        folder: Path | None = None,
        user: str | None = None,
    ) -> None:
        self.name = Path(argv[0]).name
        self.log = log
        with log.open("ab") as output:
            self._child = self._spawn(argv, output, env, folder, user)
        self.pid = self._child.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _spawn(self, argv: Words, output: BinaryIO, env: Env, folder: Path | None, user: str | None) -> Child:
        return subprocess.Popen(
            [*_ENDS_WITH_US, *map(str, argv)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if env is None else {**os.environ, **env},
            cwd=folder,
            user=user,
            group=None if user is None else pwd.getpwnam(user).pw_gid,
            extra_groups=None if user is None else [],
            # Ctrl-C is for the test runner, which stops its servers in order.
            start_new_session=True,
        )

    @property
    def is_running(self) -> bool:
        """False once the program has ended, also by itself."""
        return self._child.poll() is None

    def check(self) -> None:
        """Raise ProcessEnded unless the program runs."""
        if not self.is_running:
            raise ProcessEnded(f"{self.name} ended with status {self._child.returncode}:\n{self.log_tail()}")

    def kill(self) -> None:
        """SIGKILL, and wait until the program is gone; nothing if it is gone already."""
        self.stop(signal.SIGKILL)

    def stop(self, wish: signal.Signals = signal.SIGTERM) -> None:
        """Ask the program to end and wait for it; SIGKILL when it takes longer than 30 s."""
        if not self.is_running:
            return
        self._child.send_signal(wish)
        try:
            self._child.wait(30)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def log_tail(self, lines: int = 20) -> str:
        """The last lines that the program wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Forked(Process):
    """A Python module, `[sys.executable, "-m", …]`, that finds levelog loaded."""

    def _spawn(self, argv: Words, output: BinaryIO, env: Env, folder: Path | None, user: str | None) -> Child:
        assert user is None
        with Path(os.devnull).open("rb") as stdin:
            files = [file.fileno() for file in (stdin, output, output)]
            settings = {**os.environ, **(env or {})}
            return Preloaded([*map(str, argv)], env=settings, folder=folder or Path.cwd(), files=files)
