"""The URLs of NATS servers: which servers they name, and with whom they sign in."""

import re
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from levelog.errors import ConfigurationError

_SCHEMES: Final = ("nats", "tls", "ws", "wss")
_BETWEEN: Final = re.compile(r",\s*(?=\w+://)")  # a password may hold a comma
_HOW: Final = "write nats://HOST:PORT"


class Servers(Struct, frozen=True, kw_only=True):
    """Servers of one NATS, and what a client says to sign in; None for what the URLs do not hold."""

    urls: list[str]
    """Without user, password and token."""
    user: str | None = None
    password: str | None = None
    token: str | None = None

    @property
    def has_secret(self) -> bool:
        """Whether the URLs say with whom to sign in."""
        return self.token is not None or self.user is not None

    @property
    def requires_tls(self) -> bool:
        """Whether a URL asks for TLS: then none of the servers is spoken to without it."""
        return any(url.startswith(("tls:", "wss:")) for url in self.urls)


def parse_servers(text: str) -> Servers:
    """Read one URL, or several with commas between; user, password and token may be percent-encoded.

    Raises ConfigurationError, without what is before an @, for what is no URL, and where two URLs sign in differently.
    """
    urls: list[str] = []
    signs: set[tuple[str | None, str | None, str | None]] = set()
    for part in _parts(text):
        parsed = _parse(part)
        userinfo, _, address = parsed.netloc.rpartition("@")
        urls.append(parsed._replace(netloc=address).geturl())
        if userinfo:
            user, colon, password = userinfo.partition(":")
            signs.add((unquote(user), unquote(password), None) if colon else (None, None, unquote(user)))
    if not urls:
        raise ConfigurationError(f"no URL of a NATS server is given: {_HOW}")
    if len(signs) > 1:
        raise ConfigurationError(f"the URLs {without_credentials(text)} name several users: give all the same one")
    for name, secret, token in signs:
        return Servers(urls=urls, user=name, password=secret, token=token)
    return Servers(urls=urls)


def without_credentials(text: str) -> str:
    """The URL, or the URLs, as they may be shown: without all that is between // and the last @."""
    return ",".join(re.sub(r"//.*@", "//", part, flags=re.DOTALL) for part in _parts(text))


def _parts(text: str) -> list[str]:
    return [part.strip() for part in _BETWEEN.split(text) if part.strip()]


def _parse(part: str) -> SplitResult:
    try:
        parsed = urlsplit(part)
        is_valid = parsed.scheme in _SCHEMES and parsed.hostname and (parsed.port or True)
    except ValueError:
        is_valid = False
        parsed = urlsplit("")
    if not is_valid:
        odd = "; characters like / ? # @ in a password are written as %2F %3F %23 %40" if "@" in part else ""
        raise ConfigurationError(f"{without_credentials(part)!r} is not the URL of a NATS server: {_HOW}{odd}")
    return parsed
