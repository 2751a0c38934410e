"""A name for this process that no other one has."""

import os
import secrets
import socket


def process_name() -> str:
    """Host, process id and a random part: a pid is used again, and pods of one name come and go."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
