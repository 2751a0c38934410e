"""HTTP sessions: certificates, when to replace a session, and the proxy."""

import ssl
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from levelog_base.errors import ConfigurationError
from levelog_kube.official import Configuration, RESTClientObject

READ_BUFFER_BYTES: Final = 2 * 1024 * 1024  # lines of a watch hold objects of up to etcd's 1.5 MiB
_SCHEMES: Final = ("http", "https")


def open_session(configuration: Configuration) -> aiohttp.ClientSession:
    """A session with the TLS settings of the official client, which asks the environment once and not for each request.

    Where it does, aiohttp takes two trips to a thread for each request, which cost as much as the rest of it. It opens
    as many connections as it needs: each watch holds one, and with a limit the next would wait for ever.
    Raises ConfigurationError naming the certificates that cannot be used.
    """
    if urlsplit(str(configuration.host)).scheme == "http":
        # For these the official client would read the system's certificates too, which takes longer than anything else.
        connector: aiohttp.BaseConnector | None = aiohttp.TCPConnector(limit=0)
    else:
        try:
            official = RESTClientObject(configuration, maxsize=0).pool_manager
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfigurationError(_unusable(configuration, error)) from error
        connector = official.connector
        official.detach()
    return aiohttp.ClientSession(connector=connector, read_bufsize=READ_BUFFER_BYTES)


def tls_identity(configuration: Configuration) -> tuple[object, ...]:
    """What a session's connections depend on; files count by name and time of change."""
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    changed = tuple(_changed_at(file) for file in files)
    return (*files, *changed, configuration.verify_ssl, configuration.tls_server_name, configuration.host)


def _changed_at(file: str | None) -> int:
    try:
        return Path(file).stat().st_mtime_ns if file else 0
    except OSError:  # just being replaced
        return 0


def _unusable(configuration: Configuration, error: Exception) -> str:
    authority, certificate, key = configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file
    why = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
    if authority and not _can_be_read(authority):
        return f"the certificate authority {authority} cannot be used ({why}): it has to hold certificates in PEM"
    return (
        f"the client certificate {certificate} and its key {key} cannot be used ({why}): "
        "both have to be in PEM, and the key that of the certificate"
    )


def _can_be_read(authority: str) -> bool:
    try:
        ssl.create_default_context(cafile=authority)
    except (OSError, ValueError):
        return False
    return True


def environment_proxy(host: str) -> str | None:
    """What HTTPS_PROXY, HTTP_PROXY and NO_PROXY say of a server; NO_PROXY may hold networks, as in Go.

    Raises ConfigurationError as `proxy_of`.
    """
    url = urlsplit(host)
    proxy = getproxies().get(url.scheme)
    if not proxy or not url.hostname or _is_excepted(url.hostname):
        return None
    return proxy_of(proxy, f"{url.scheme.upper()}_PROXY")


def proxy_of(text: str, setting: str) -> str:
    """The URL of a proxy; it is asked by http where a setting names no scheme, as curl and Go have it.

    Raises ConfigurationError, naming the setting, for a proxy that cannot be asked.
    """
    proxy = text if "://" in text else f"http://{text}"
    with suppress(ValueError):
        url = URL(proxy)
        if url.scheme in _SCHEMES and url.host and url.port:
            return proxy
    raise ConfigurationError(f"{setting}: write http://HOST:PORT, or https; other proxies cannot be asked")


def without_password(proxy: str) -> str:
    """The proxy as messages name it."""
    return str(URL(proxy).with_user(None))


def _is_excepted(name: str) -> bool:
    if proxy_bypass(name):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return name == "localhost"
    return address.is_loopback or any(address in network for network in _networks())


def _networks() -> list[IPv4Network | IPv6Network]:
    found: list[IPv4Network | IPv6Network] = []
    for text in getproxies().get("no", "").split(","):
        try:
            found.append(ip_network(text.strip(), strict=False))
        except ValueError:
            continue
    return found
