"""TCP ports on 127.0.0.1 for servers that are told their port."""

import errno
import itertools
import os
import secrets
import socket

# Below the kernel's range for outgoing connections (32768 on Linux, 49152 on macOS), so that no client of a parallel
# test takes the port while its server is being killed and started again.
FIRST, LAST = 12_000, 32_000
# Each worker of pytest-xdist has ports of its own and gives none twice until it has given all: a server binds its port
# some time after it was chosen.
WORKERS = 16


def _own_ports() -> list[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    own = range(FIRST, LAST)[worker::WORKERS]
    start = secrets.randbelow(len(own))
    return [*own[start:], *own[:start]]


_untried = itertools.cycle(_own_ports())


def free_port() -> int:
    """A port that nothing listens on now, and that no other test of this run is given soon."""
    while True:
        port = next(_untried)
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
