"""Which objects have their bodies in memory: those that were used last. The tables have the others."""

from typing import Final

ABSENT: Final = b""
"""In place of a body that is not in memory."""
MOST_BYTES: Final = 2**25
"""Of bodies in memory, 32 MiB."""


class Bodies:
    """Sizes of the bodies that may leave memory, least recently used first."""

    def __init__(self, most: int | None) -> None:
        """`most`: bytes; None: all bodies stay."""
        self.most: Final = most
        self._sizes: dict[str, int] = {}
        self._bytes = 0

    def use(self, name: str, body: bytes) -> None:
        """Count an object's body as used last."""
        self.drop(name)
        self._sizes[name] = len(body)
        self._bytes += len(body)

    def drop(self, name: str) -> None:
        """Count the body of an object no more."""
        self._bytes -= self._sizes.pop(name, 0)

    def take_excess(self) -> list[str]:
        """Objects whose bodies have to go, which are not counted any more."""
        gone: list[str] = []
        left = self._bytes
        for name, size in self._sizes.items():  # in one go: to find the first one passes all that has gone before it
            if self.most is None or left <= self.most:
                break
            gone.append(name)
            left -= size
        for name in gone:
            self.drop(name)
        return gone
