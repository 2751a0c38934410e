"""Child processes that never outlive the tests."""

import os
import pwd
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol, Self, TypeAlias

from rigs.preloaded import Preloaded

Words: TypeAlias = Sequence[str | Path]
Env: TypeAlias = Mapping[str, str] | None

# The shell starts a watcher and then becomes the program, so that the pid is the program's. The watcher reads a pipe
# whose other end only the test process holds: end of file means that this process is gone, a line means that the
# program is. Twice in parentheses, so that the watcher is init's child and not the program's, which might wonder.
_GUARD = """
exec 3<&0 </dev/null
( (read -r _ <&3 || kill -KILL $$) & )
exec "$@" 3<&-
"""


class ProcessEnded(Exception):
    """A server ended although nobody asked it to; the message holds the end of its log."""


class Child(Protocol):
    """What is used of subprocess.Popen."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, wish: signal.Signals, /) -> None: ...

    def kill(self) -> None: ...


class Process:
    """A program that is killed when the process that started it ends, in whichever way (SIGKILL included).

    Used as `with`: it is killed at the end, too. Output goes to the end of `log`. `user` is the name of the account to
    run as, for the superuser only. The program's own children are not watched.
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
        self._lifeline = -1
        with log.open("ab") as output:
            self._child = self._spawn(argv, output, env, folder, user)
        self.pid = self._child.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _spawn(self, argv: Words, output: BinaryIO, env: Env, folder: Path | None, user: str | None) -> Child:
        reading, self._lifeline = os.pipe()
        try:
            return subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "guard", *map(str, argv)],
                stdin=reading,
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
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(reading)

    @property
    def is_running(self) -> bool:
        """False once the program has ended, also by itself."""
        if self._child.poll() is None:
            return True
        self._dismiss_watcher()
        return False

    def check(self) -> None:
        """Raise ProcessEnded unless the program runs."""
        if not self.is_running:
            raise ProcessEnded(f"{self.name} ended with status {self._child.returncode}:\n{self.log_tail()}")

    def kill(self) -> None:
        """SIGKILL, and wait until the program is gone; nothing if it is gone already."""
        self.stop(signal.SIGKILL)

    def stop(self, wish: signal.Signals = signal.SIGTERM, *, seconds: float = 30.0) -> None:
        """Ask the program to end and wait for it; SIGKILL when it takes longer than `seconds`."""
        if not self.is_running:
            return
        self._child.send_signal(wish)
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._dismiss_watcher()

    def log_tail(self, lines: int = 20) -> str:
        """The last lines that the program wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _dismiss_watcher(self) -> None:
        # The pid may be another program's from now on: the watcher must not kill it.
        if self._lifeline >= 0:
            with suppress(BrokenPipeError):  # of a shell that did not come as far as starting a watcher
                os.write(self._lifeline, b"\n")
            os.close(self._lifeline)
            self._lifeline = -1


class Forked(Process):
    """A Python module, `[sys.executable, "-m", …]`, that finds levelog loaded."""

    def _spawn(self, argv: Words, output: BinaryIO, env: Env, folder: Path | None, user: str | None) -> Child:
        assert user is None
        with Path(os.devnull).open("rb") as stdin:
            files = [file.fileno() for file in (stdin, output, output)]
            settings = {**os.environ, **(env or {})}
            return Preloaded([*map(str, argv)], env=settings, folder=folder or Path.cwd(), files=files)
