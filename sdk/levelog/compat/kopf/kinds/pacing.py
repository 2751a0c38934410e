"""Kopf's timers, run as levelog's."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from levelog.compat.kopf.attempts import Attempts, next_call
from levelog.compat.kopf.kinds.declaring import AttemptedHandler
from levelog.compat.kopf.options import Declaration
from levelog.effects import Call
from levelog.handlers.timers import Tick, TimerHandler


class PacedHandler(AttemptedHandler, TimerHandler):
    """A function of a Kopf file that is called for each object now and then, with keyword arguments."""

    result = dict[str, Any] | None

    def __init__(
        self,
        name: str,
        declared: Declaration,
        attempts: Attempts,
        *,
        interval: timedelta,
        initial_delay: timedelta,
        idle: timedelta | None,
        sharp: bool,
    ) -> None:
        self.every, self.initial_delay, self.idle, self.sharp = interval, initial_delay, idle, sharp
        code = (attempts.id, attempts.limits, attempts.param)
        self.take(name, declared.cls, attempts, declared.filters, "tick", code, give_up_after=attempts.limits.timeout)
        self.function = self._run

    def left(self, last: Call[Tick, Any], now: datetime) -> tuple[datetime, dict[str, Any]] | None:
        """When the last call is made again, and what it has left; None: it did not raise, or left nothing."""
        found = next_call(last, self.attempts.limits, now)
        return None if found is None else (found[0], msgspec.to_builtins(found[1]))

    def words(self, tick: Tick) -> dict[str, Any]:  # noqa: ARG002 - handlers of this kind are told more of it
        """What only handlers of this kind are told."""
        return {}

    def _run(self, tick: Tick, retry: int, started: datetime) -> Any:
        return self.attempts.run(tick.object, retry, started, self.words(tick), tick.carried)
