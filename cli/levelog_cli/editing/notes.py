"""What `levelog dev` says above the levels for as long as it is so: one process finds it out, another one shows it."""

from collections.abc import Sequence
from multiprocessing.connection import Connection


class BoardNotes:
    """Lines by their subject, each sent on as a whole where somebody shows them."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        self._shown_by: Connection | None = None

    def show_by(self, connection: Connection) -> None:
        """Send them there from now on."""
        self._shown_by = connection

    def put(self, subject: str, lines: Sequence[str]) -> None:
        """Say these lines of a subject in place of those before."""
        if self._lines.get(subject, []) != list(lines):
            self._lines[subject] = list(lines)
            if self._shown_by is not None:
                self._shown_by.send([line for lines in self._lines.values() for line in lines])
