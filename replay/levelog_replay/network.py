"""Reconcile functions that reach for the network are refused: what they would find now is not what they found then."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from levelog.calls.faults import HandlerFault

_REFUSED: Final = frozenset(
    {
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyaddr",
        "socket.gethostbyname",
        "socket.sendmsg",
        "socket.sendto",
        "subprocess.Popen",
        "urllib.Request",
    }
)
"""Audit events (docs.python.org/3/library/audit_events.html)."""

_is_inside: ContextVar[bool] = ContextVar("levelog_refuses_network", default=False)
"""Whether a user's function runs here; its threads and tasks inherit it."""
_is_installed = False


@contextmanager
def offline() -> Generator[None]:
    """Refuse the network to what is called in the context, in its threads and tasks too: HandlerFault is raised there.

    Limit: connections that an event loop makes by itself in C, as uvloop's `create_connection` does, are not seen.
    """
    global _is_installed  # noqa: PLW0603 - a hook cannot be removed, so that it is added once for the process
    if not _is_installed:
        _is_installed = True
        sys.addaudithook(_refuse)
    token = _is_inside.set(True)
    try:
        yield
    finally:
        _is_inside.reset(token)


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if event in _REFUSED and _is_inside.get():
        raise HandlerFault(f"{event} {args[1:2] or args}: replay refuses the network, unless given --allow-network")
