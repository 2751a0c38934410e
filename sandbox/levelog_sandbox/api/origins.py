"""Refuses what a browser asks for somebody else's page: whoever reaches the sandbox is its administrator."""

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from levelog_sandbox.api.refusals import StatusError

_OWN: Final = ("", "none", "same-origin")
"""Of Sec-Fetch-Site: no browser, an address that was typed, or a page of the sandbox, of which there is none."""


def refuse_pages(headers: Mapping[str, str], names: Collection[str]) -> None:
    """Raise `StatusError` 403 for a request of a page, or under a name that somebody else may own.

    A page whose own name leads to 127.0.0.1 (DNS rebinding) sends that name as Host. Addresses, names without a dot,
    which no stranger can register, and `names` are taken.
    """
    if "Origin" in headers or headers.get("Sec-Fetch-Site", "") not in _OWN:
        raise StatusError(403, "Forbidden", "the sandbox answers no pages of a browser")
    host = _name_of(headers.get("Host", ""))
    if "." in host and host not in names and not _is_address(host):
        raise StatusError(
            403, "Forbidden", f"the sandbox is not {host}: reach it by its address, or start it with --name {host}"
        )


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
