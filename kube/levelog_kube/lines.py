"""Lines out of a body that comes in pieces; a watch sends one JSON document a line, some of several megabytes."""


class LineSplitter:
    """Cuts pieces at line feeds; its work is linear in the bytes, however long the lines are."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """Lines that the piece completes, without their line feeds and without empty ones."""
        lines = piece.split(b"\n")
        last = lines.pop()
        if lines and self._begun:
            self._begun.append(lines[0])
            lines[0] = b"".join(self._begun)
            self._begun.clear()
        if last:
            self._begun.append(last)
        return [line for line in lines if line]

    @property
    def is_within_line(self) -> bool:
        """Whether the last line is not complete."""
        return bool(self._begun)
