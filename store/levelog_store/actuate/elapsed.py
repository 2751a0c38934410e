"""The clock for claims and heartbeats: it runs on while the machine sleeps.

The database's clock, by which others take claims over, goes on as well. The event loop's does not; it is for timers.
"""

import time
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # only Linux has the first


def elapsed() -> float:
    """Seconds since a moment that stays the same as long as the process lives."""
    return time.clock_gettime(_CLOCK)
