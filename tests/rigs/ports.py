"""TCP ports on 127.0.0.1 for servers that are told their port."""

import errno
import secrets
import socket

# Below the kernel's range for outgoing connections (32768 on Linux, 49152 on macOS), so that no client of a parallel
# test takes the port while its server is being killed and started again.
FIRST, LAST = 12_000, 32_000


def free_port() -> int:
    """A port that nothing listens on now; nothing reserves it until the caller does."""
    while True:
        port = FIRST + secrets.randbelow(LAST - FIRST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port


def is_listening(port: int) -> bool:
    """Whether something accepts connections on 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
