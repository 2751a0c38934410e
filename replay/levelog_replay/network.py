"""Reconcile functions that reach for the network are refused: what they would find now is not what they found then."""

import sys
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final

from levelog.faults import HandlerFault
from levelog_processors.calling import Caller

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


class OfflineCaller(Caller):
    """Calls reconcile functions, without the network.

    Limit: connections that an event loop makes by itself in C, as uvloop's `create_connection` does, are not seen.
    """

    def __init__(self, *, threads: int) -> None:
        global _is_installed  # noqa: PLW0603 - a hook cannot be removed, so that it is added once for the process
        super().__init__(threads=threads)
        if not _is_installed:
            _is_installed = True
            sys.addaudithook(_refuse)

    async def run(self, key: Hashable, function: Callable[[], Any], limit: timedelta, *, is_async: bool) -> Any:
        """Call a function; raises HandlerFault where it reaches for the network."""
        token = _is_inside.set(True)
        try:
            return await super().run(key, function, limit, is_async=is_async)
        finally:
            _is_inside.reset(token)


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if event in _REFUSED and _is_inside.get():
        raise HandlerFault(f"{event} {args[1:2] or args}: replay refuses the network, unless given --allow-network")
