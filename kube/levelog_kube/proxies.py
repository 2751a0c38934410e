"""Which proxy a server is asked through, by the variables that other Kubernetes clients read too."""

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from yarl import URL

_SCHEMES: Final = ("http", "https")


def environment_proxy(host: str) -> str | None:
    """What HTTPS_PROXY, HTTP_PROXY and NO_PROXY say of a server; NO_PROXY may hold networks, as in Go."""
    url = urlsplit(host)
    if not url.hostname or _is_excepted(url.hostname):
        return None
    return getproxies().get(url.scheme)


def without_password(proxy: str) -> str:
    """The proxy as messages name it."""
    return str(URL(proxy).with_user(None))


def is_usable(proxy: str) -> bool:
    """Tell whether it is a kind of proxy that can be asked."""
    return urlsplit(proxy).scheme in _SCHEMES


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
