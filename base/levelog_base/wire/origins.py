"""Whether an HTTP request is made by somebody else's page in a browser."""

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

_OWN: Final = ("", "none", "same-origin")
"""Values of Sec-Fetch-Site: no browser, an address that was typed, or a page of the same server."""


def is_of_a_page(headers: Mapping[str, str]) -> bool:
    """Tell whether the page of another server sent the request, or any page sent it with a body or from a script."""
    return "Origin" in headers or headers.get("Sec-Fetch-Site", "") not in _OWN


def strange_name(headers: Mapping[str, str], names: Collection[str]) -> str:
    """The Host of a request, if a stranger may own that name; else empty.

    A page whose own name leads to 127.0.0.1 (DNS rebinding) sends that name as Host. Addresses, names without a dot,
    which no stranger can register, and `names` are taken.
    """
    host = _name_of(headers.get("Host", ""))
    return host if "." in host and host not in names and not _is_address(host) else ""


def _name_of(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # a port that is no number
        return host


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
