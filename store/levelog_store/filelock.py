"""The lock beside a SQLite file that makes sure that one process at a time writes to it."""

import fcntl
import os
from pathlib import Path
from typing import Self

from levelog.errors import ConfigurationError


class FileLock:
    """An exclusive lock on `<file>.lock`, held until `release` or the end of the process, SIGKILL included.

    The kernel drops it with the process; the file stays, and holds the pid of the last owner for messages. It works
    between processes of one machine: not over NFS.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, database: Path) -> Self:
        """Take the lock of a database file at once, or raise ConfigurationError."""
        path = database.with_name(f"{database.name}.lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigurationError(f"the database {database} cannot be opened: {error.strerror}: {path}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            pid = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise ConfigurationError(f"the database {database} cannot be locked: {error.strerror}") from error
            owner = f"process {pid}" if pid else "another process"
            raise ConfigurationError(
                f"the database {database} is in use by {owner}: SQLite serves one process, use PostgreSQL for several"
            ) from error
        return cls(descriptor)

    def release(self) -> None:
        """Let others have it; nothing if it was released before."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
