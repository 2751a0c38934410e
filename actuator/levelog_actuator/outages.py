"""Outages of the API server: nothing is sent for a while, then one intent tries whether it can be reached again."""

import asyncio
import logging

from levelog_actuator.results import Later, Result
from levelog_actuator.settings import ActuatorSettings

log = logging.getLogger(__name__)


class Outage:
    """Whether the API server can be reached, as far as the last results tell."""

    def __init__(self, settings: ActuatorSettings) -> None:
        self._settings = settings
        self._failures = 0
        self._ends_at = 0.0

    @property
    def is_on(self) -> bool:
        """The last request found no server."""
        return self._failures > 0

    @property
    def is_closed(self) -> bool:
        """Nothing is to be sent now."""
        return _now() < self._ends_at

    async def wait(self) -> None:
        """Wait until the server may be tried again."""
        await asyncio.sleep(max(0.0, self._ends_at - _now()))

    def note(self, result: Result) -> None:
        """Learn from what an intent came to."""
        if isinstance(result, Later) and result.is_unreachable:
            if not self.is_closed:
                self._failures += 1
                delay = self._settings.delay(self._failures).total_seconds()
                self._ends_at = _now() + delay
                log.warning("nothing is sent for %.1f s: %s", delay, result.error)
        elif not isinstance(result, Later) or result.is_counted:
            self._failures = 0


def _now() -> float:
    return asyncio.get_running_loop().time()
