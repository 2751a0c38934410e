"""Where a database is: the URLs that people write, as URLs for the async drivers."""

from pathlib import Path

from msgspec import Struct
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from levelog.errors import ConfigurationError

_POSTGRESQL = ("postgresql", "postgres", "postgresql+asyncpg")
_SQLITE = ("sqlite", "sqlite+aiosqlite")


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
        return f"{self.url.host or 'localhost'}{port}/{self.url.database or self.url.username or ''}"


def locate(text: str) -> Location:
    """The location that a URL or a path names.

    `postgresql://`, `postgres://` and `postgresql+asyncpg://` are one thing, as are `sqlite:///file`, `sqlite+aiosqlite:///file`
    and a plain path. Raises ConfigurationError for anything else; the message holds no password.
    """
    if "://" not in text:
        return _file(text)
    scheme = text.partition("://")[0]
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise ConfigurationError(f"the database URL ({scheme}://…) cannot be read: {_without(text, error)}") from error
    if scheme in _POSTGRESQL:
        if "@" in (url.host or ""):
            raise ConfigurationError(
                f"the database URL ({scheme}://…) has two @: a password that holds one has %40 in its place"
            )
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
    return Location(URL.create("sqlite+aiosqlite", database=str(path)), path)


def _without(text: str, error: Exception) -> str:
    """The error's words, unless they repeat the URL, which may hold a password."""
    words = str(error)
    return "it is not of the form scheme://user:password@host:port/database" if text in words else words
