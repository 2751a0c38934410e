"""A limited rate, without sleeping: what may be done now, and when there is more."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

PAGE: Final = 100
"""Most that is done at once: small enough that a live change waits a few hundredths of a second for it at most."""

PAGES_A_SECOND: Final = 5
"""At low rates a page is what comes in a fifth of a second, so that progress is steady."""


class Pace:
    """A token bucket that holds one page, full at the beginning; `rate` is by the second, of whatever is counted."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        if rate <= 0:
            raise ValueError(f"a rate of {rate} a second would never end")
        self._rate = rate
        self._clock = clock
        self.page: Final = max(1, min(PAGE, int(rate / PAGES_A_SECOND)))
        """How much may be done at once."""
        self._held = float(self.page)
        self._at = clock()

    @property
    def wait(self) -> timedelta:
        """Time until a page may be done."""
        self._fill()
        return timedelta(seconds=max(0.0, (self.page - self._held) / self._rate))

    def take(self, done: int) -> None:
        """Note what was done."""
        self._fill()
        self._held -= done

    def _fill(self) -> None:
        now = self._clock()
        self._held = min(float(self.page), self._held + (now - self._at) * self._rate)
        self._at = now
