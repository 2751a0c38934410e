"""How one side of a TCP connection ends it."""

import asyncio
import socket
import struct
from typing import Literal

HangUp = Literal["fin", "reset"]


def hang_up(transport: asyncio.BaseTransport | None, how: HangUp) -> None:
    """Close a connection: after what was written (`fin`), or at once, so that the peer sees a reset.

    Nothing if it is closed already. A peer that sent something unread may see a reset in both cases: the kernel's rule.
    """
    if not isinstance(transport, asyncio.WriteTransport) or transport.is_closing():
        return
    if how == "fin":
        transport.close()
        return
    end_by_reset(transport.get_extra_info("socket"))
    transport.abort()


def end_by_reset(endpoint: socket.socket) -> None:
    """Let the peer see a reset when the socket is closed."""
    endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
