"""What `levelog dev` says above the levels for as long as it is so: one process finds it out, another one shows it."""

from collections.abc import Sequence
from multiprocessing import Lock
from multiprocessing.connection import Connection


class BoardNotes:
    """Sends lines on to where somebody shows them, from any process that was forked since."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._shown_by: Connection | None = None

    def show_by(self, connection: Connection) -> None:
        """Send them there from now on."""
        self._shown_by = connection

    def put(self, subject: str, lines: Sequence[str]) -> None:
        """Say these lines of a subject in place of those before."""
        if self._shown_by is not None:
            with self._lock:
                self._shown_by.send((subject, list(lines)))
