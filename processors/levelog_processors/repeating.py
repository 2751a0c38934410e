"""Rounds that are undone: what a level wrote, and found as it was before, again and again."""

from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from levelog.canonical import canonical

AT_ONCE: Final = 6
"""So many rounds in a row for the same state come without a wait: the first one, and five more."""
CALM: Final = timedelta(minutes=1)
"""A level that stayed in sync for so long was not undone by somebody who does so each time."""


class Repeats(Struct, frozen=True, kw_only=True):
    """How often in a row a level has written because of one and the same state."""

    of: str
    """Digest of what was desired, and what was there."""
    count: int
    """1: the round was the first for it."""
    at: datetime
    """When the last of these rounds was decided."""

    @classmethod
    def read(cls, text: str | None) -> "Repeats | None":
        """What a level's row keeps; None: it wrote nothing yet."""
        return _decoder.decode(text) if text else None

    @property
    def text(self) -> str:
        """As a level's row keeps it."""
        return canonical(self).decode()

    def then(self, of: str, now: datetime) -> "Repeats":
        """After another round that wrote."""
        return Repeats(of=of, count=self.count + 1 if of == self.of else 1, at=now)


_decoder: Final = msgspec.json.Decoder(Repeats)
