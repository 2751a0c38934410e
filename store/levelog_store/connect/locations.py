"""Parses database URLs, and locks a SQLite file for its one writing process."""

import fcntl
import os
import re
from pathlib import Path
from typing import Self

from msgspec import Struct
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from levelog_base.errors import ConfigurationError

_POSTGRESQL = ("postgresql", "postgres", "postgresql+asyncpg")
_SQLITE = ("sqlite", "sqlite+aiosqlite")
_SEVERAL = re.compile(r"(?<=[/@])[^@/?,:]+(:\d+)?(,[^@/?,:]+(:\d+)?)+(?=([/?][^@]*)?$)")
"""Hosts with commas between, which SQLAlchemy does not read; nothing before an @, which may be a password."""


class Location(Struct, frozen=True):
    """A database's place: a PostgreSQL URL, or the path of a SQLite file."""

    url: URL
    path: Path | None
    """The file, absolute and without links; None for PostgreSQL."""

    @property
    def name(self) -> str:
        """How messages name it; without a password."""
        if self.path is not None:
            return str(self.path)
        port = f":{self.url.port}" if self.url.port else ""
        host = self.url.host or self.url.query.get("host", "localhost")
        return f"{host}{port}/{self.url.database or self.url.username or ''}"


def locate(text: str) -> Location:
    """The location that a URL or a path names.

    `postgresql://`, `postgres://` and `postgresql+asyncpg://` are one thing, as are `sqlite:///file`, `sqlite+aiosqlite:///file`
    and a plain path. Several hosts, which libpq takes, come back in the query, with commas between. Raises
    ConfigurationError for anything else; the message holds no password.
    """
    if "://" not in text:
        return _file(text)
    scheme = text.partition("://")[0]
    several = _SEVERAL.search(text)
    try:
        url = make_url(_SEVERAL.sub("", text))
    except (ArgumentError, ValueError) as error:
        raise ConfigurationError(f"the database URL ({scheme}://…) cannot be read: {_without(text, error)}") from error
    if scheme in _POSTGRESQL:
        if "@" in (url.host or ""):
            raise ConfigurationError(
                f"the database URL ({scheme}://…) has two @: a password that holds one has %40 in its place"
            )
        hosts = several[0] if several else ",".join(url.normalized_query.get("host", ()))
        url = url.update_query_dict({"host": hosts} if hosts else {})
        return Location(url.set(drivername="postgresql+asyncpg"), None)
    if scheme in _SQLITE:
        if url.host:
            raise ConfigurationError(
                f"the database URL {text!r} names a host: write sqlite:/// and then the file's path"
            )
        return _file(url.database or "")
    raise ConfigurationError(f"databases of the kind {scheme!r} are not supported: use postgresql:// or sqlite:///")


def _file(text: str) -> Location:
    if text in ("", ":memory:"):
        raise ConfigurationError("a SQLite database needs a file: state in memory would be lost with the process")
    path = Path(text).expanduser().resolve()  # one file has one lock, whatever links lead to it
    return Location(URL.create("sqlite", database=str(path)), path)


def _without(text: str, error: Exception) -> str:
    """The error's words, unless they repeat the URL, which may hold a password."""
    words = str(error)
    return "it is not of the form scheme://user:password@host:port/database" if text in words else words


class FileLock:
    """An exclusive lock on `<file>.lock`, held until `release` or the end of the process, SIGKILL included.

    The kernel releases it with the process; the file stays, and has the pid of the last owner for messages. It works
    between processes of one machine, not over NFS.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, database: Path) -> Self:
        """Take the lock of a database file at once, or raise ConfigurationError."""
        path = database.with_name(f"{database.name}.lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
