"""Where NATS is, how a connection authenticates, and which certificates it trusts."""

import base64
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

import nats.errors
from msgspec import Struct

from levelog_base.errors import ConfigurationError

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
        """Whether a URL asks for TLS: then the client uses no server without it."""
        return any(url.startswith(("tls:", "wss:")) for url in self.urls)


def parse_servers(text: str) -> Servers:
    """Parse one URL, or several with commas between; user, password and token may be percent-encoded.

    Raises ConfigurationError, without the part before an @, for an invalid URL, and if two URLs sign in differently.
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


class NatsAccess(Struct, frozen=True, kw_only=True):
    """Files for NATS; None if not given. Each field is the setting `--nats-…` of its name."""

    credentials_file: Path | None = None
    """A user's JWT and the seed of its key, as nsc writes them."""
    nkey_file: Path | None = None
    """The seed of a user's key."""
    ca_file: Path | None = None
    """Certificates that sign the servers'; without it, those that the system trusts."""
    cert_file: Path | None = None
    key_file: Path | None = None

    def check(self, servers: Servers) -> None:
        """Raise ConfigurationError if a file cannot be used, or two say different things."""
        ways = {
            "--nats-credentials": self.credentials_file is not None,
            "--nats-nkey-file": self.nkey_file is not None,
            "user or token in --nats-url": servers.has_secret,
        }
        given = [way for way, is_given in ways.items() if is_given]
        if len(given) > 1:
            raise ConfigurationError(f"there are several ways to sign in to NATS, {' and '.join(given)}: give one")
        if (self.cert_file is None) != (self.key_file is None):
            raise ConfigurationError("a certificate for NATS has a key: give --nats-cert-file and --nats-key-file")
        try:
            self.sign(b"")
        except nats.errors.Error as error:
            raise ConfigurationError(str(error).removeprefix("nats: ")) from error

    @property
    def requires_tls(self) -> bool:
        """Whether a certificate is given, so that the client says nothing without TLS."""
        return self.ca_file is not None or self.cert_file is not None

    def tls_context(self) -> ssl.SSLContext:
        """Settings of TLS. Raises ConfigurationError naming the file that cannot be used."""
        context = ssl.create_default_context()
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Read the certificates, which may have been replaced; raises as `tls_context` does."""
        if self.ca_file is not None:
            _tls(self.ca_file, "--nats-ca-file", lambda: context.load_verify_locations(self.ca_file))
        if self.cert_file is not None and self.key_file is not None:
            chain = (self.cert_file, self.key_file, _no_passphrase)
            files = f"{self.cert_file} and {self.key_file}"
            _tls(files, "--nats-cert-file and --nats-key-file", lambda: context.load_cert_chain(*chain))

    def options(self) -> dict[str, Any]:
        """Callbacks for nats-py, which calls them for each attempt; they raise its errors, which it survives."""
        if self.credentials_file is None and self.nkey_file is None:
            return {}
        signed = {"signature_cb": lambda nonce: base64.b64encode(self.sign(str(nonce).encode())[2])}
        return signed if self.credentials_file is None else {**signed, "user_jwt_cb": self._jwt}

    def sign(self, nonce: bytes) -> tuple[str, str, bytes]:
        """The JWT, the public key (either may be empty) and a signature, from the files as they are now.

        Raises nats.errors.Error naming a file that cannot be used, without its content.
        """
        flag, file = ("--nats-credentials", self.credentials_file)
        if file is None:
            flag, file = ("--nats-nkey-file", self.nkey_file)
        if file is None:
            return "", "", b""
        from levelog_log.transport.nkeys import Nkey, parse_credentials  # noqa: PLC0415 - 5 MB for those who have such a file

        try:
            text = file.read_text(encoding="ascii")
            jwt, key = parse_credentials(text) if file is self.credentials_file else ("", Nkey.from_seed(text.strip()))
        except OSError as error:
            raise nats.errors.Error(f"{file} ({flag}) cannot be read: {error.strerror}") from error
        except ValueError as error:
            why = "it is no text" if isinstance(error, UnicodeError) else str(error)
            raise nats.errors.Error(f"{file} ({flag}) cannot be used: {why}") from None
        return jwt, key.public, key.sign(nonce)

    def _jwt(self) -> bytes:
        return self.sign(b"")[0].encode()


def explain_tls(error: ssl.SSLError) -> str:
    """Why TLS failed, without numbers of OpenSSL's sources, and what may mend it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = "; the CA that signed it is given with --nats-ca-file" if error.verify_code in _NOT_SIGNED else ""
        return f"the server's certificate is not trusted: {error.verify_message}{hint}"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    is_about_ours = "alert" in reason  # said by the server
    hint = "; the certificate to show is given with --nats-cert-file and --nats-key-file" if is_about_ours else ""
    return f"TLS failed: {reason}{hint}"


_NOT_SIGNED: Final = (18, 19, 20, 21)
"""X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT and what follows, from OpenSSL's x509_vfy.h."""


def _no_passphrase() -> str:
    return "-"  # an encrypted key is refused; if there were no answer, OpenSSL would ask on the terminal


def _tls(files: Path | str, flags: str, load: Callable[[], None]) -> None:
    try:
        load()
    except ssl.SSLError as error:
        why = (error.reason or "it holds no certificate").replace("_", " ").lower()
        raise ConfigurationError(f"{files} ({flags}) cannot be used for TLS: {why}") from error
    except OSError as error:
        raise ConfigurationError(f"{files} ({flags}) cannot be read: {error.strerror}") from error
