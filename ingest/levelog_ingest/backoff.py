"""How long to wait before the next attempt."""

import random
from datetime import timedelta
from typing import Final

FIRST: Final = timedelta(seconds=0.5)
LONGEST: Final = timedelta(seconds=30)  # as client-go's reflector


class Backoff:
    """Doubles with each failure in a row, with jitter, so that many clients do not come back at once."""

    def __init__(self, first: timedelta = FIRST, longest: timedelta = LONGEST) -> None:
        self._first = first
        self._longest = longest
        self._failures = 0

    def succeeded(self) -> None:
        """Begin at the shortest wait again."""
        self._failures = 0

    def failed(self, at_least: timedelta | None = None) -> timedelta:
        """How long to wait now; never less than what the server asked for."""
        factor = 1 << min(self._failures, 16)
        self._failures += 1
        jitter = random.uniform(0.5, 1.0)  # noqa: S311  # it spreads load and hides nothing
        wait = min(self._longest, self._first * factor) * jitter
        return wait if at_least is None else max(wait, at_least)
