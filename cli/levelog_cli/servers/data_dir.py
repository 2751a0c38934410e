"""The data directory: what embedded servers keep between two runs, used by one process at a time."""

import fcntl
import os
import secrets
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from levelog.kinds import ServedKind
from levelog_base.errors import ConfigurationError

DEV_DIR: Final = Path(".levelog/dev")
"""Data directory of `levelog dev`."""
FREE_SECONDS: Final = 10.0  # how long what a killed process left behind may take to end
_INSTEAD: Final = "stop that one, give this one another --data-dir, or use --nats-url and --database-url for several"


class DataDir:
    """Names the files in the directory; nothing is written before `claim`."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self.shown = path
        self.database = self.path / "levelog.db"
        self.nats = self.path / "nats"
        self.nats_url_file = self.path / "nats.url"
        self._kinds = self.path / "kinds.json"
        self._lock = self.path / "lock"
        self._key = self.path / "redaction.key"

    @property
    def database_url(self) -> str:
        """URL of the SQLite file."""
        return f"sqlite:///{self.database}"

    @contextmanager
    def claim(self, *, instead: str = _INSTEAD) -> Generator[int]:
        """Make the directory, for this account only, and keep other processes out of it.

        Gives the descriptor of the lock: the directory stays claimed as long as any process has it open, so that a
        child that it is handed down to is not joined by a second one.

        Raises ConfigurationError if another process uses the directory, saying what to do instead, or it cannot be
        written.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.path / ".gitignore").write_text("*\n")
            lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(f"data directory {self.shown} cannot be written: {error.strerror}") from error
        try:
            self._take(lock, instead)
            self._narrow()
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
            yield lock
        finally:
            os.close(lock)

    def _narrow(self) -> None:
        """Let nobody else read what is kept, also in a directory that was there before, with wider rights.

        Whoever may not enter a folder reads no file in it.
        """
        for file in self.path.iterdir():
            if file.is_dir():
                file.chmod(0o700)
            elif file.name.startswith(self.database.name):
                file.chmod(0o600)

    def has(self, path: Path) -> bool:
        """Whether something is there. Raises ConfigurationError where nobody may look, as in another account's."""
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise ConfigurationError(f"data directory {self.shown} cannot be read: {error.strerror}") from error
        return True

    @property
    def known_redaction_key(self) -> Path | None:
        """The key of this directory; None if none was ever asked for."""
        return self._key if self.has(self._key) else None

    def redaction_key_file(self) -> Path:
        """The key of this directory, made when first asked for; readable by its owner only."""
        if not self._key.exists():
            _replace(self._key, f"{secrets.token_hex(32)}\n".encode())
        return self._key

    def keep_kinds(self, kinds: Sequence[ServedKind]) -> None:
        """Note what a cluster was found to serve, for commands that ask none; not where nothing may be written."""
        with suppress(OSError):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(self._kinds, msgspec.json.format(msgspec.json.encode(kinds, order="sorted")))

    def known_kinds(self) -> list[ServedKind]:
        """The kinds that were found last; none if nobody asked yet. Raises ConfigurationError for a damaged note."""
        try:
            return msgspec.json.decode(self._kinds.read_bytes(), type=list[ServedKind])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigurationError(f"{self._kinds} cannot be read: {error}") from error

    def running_nats_url(self) -> str:
        """URL, with credentials, of the embedded nats-server of a process that runs now; empty if there is none."""
        try:
            url = self.nats_url_file.read_text().strip()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise ConfigurationError(f"{self.nats_url_file} cannot be read: {error.strerror}") from error
        return url if self.is_claimed else ""

    def _take(self, lock: int, instead: str) -> None:
        deadline = time.monotonic() + FREE_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = _read_pid(lock)
                if not _is_alive(holder) and time.monotonic() < deadline:
                    time.sleep(0.02)  # a process that has ended leaves children that end now; flock has no deadline
                    continue
                who = f" (pid {holder})" if holder is not None else ""
                raise ConfigurationError(
                    f"data directory {self.shown} is in use by another process{who}: {instead}"
                ) from error
            return

    @property
    def is_claimed(self) -> bool:
        """Whether a process uses the directory now."""
        if not self.has(self._lock):
            return False
        with self._lock.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


def _replace(file: Path, content: bytes) -> None:
    """Write a file whole or not at all, for this account only."""
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        temporary.touch(mode=0o600)
        temporary.write_bytes(content)
        temporary.rename(file)
    finally:
        temporary.unlink(missing_ok=True)


def _read_pid(lock: int) -> int | None:
    text = os.pread(lock, 20, 0).strip()
    return int(text) if text.isdigit() else None


def _is_alive(pid: int | None) -> bool:
    """Whether another process has that id."""
    if pid is None or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
