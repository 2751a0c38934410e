"""Kopf's timers, run as levelog's."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from levelog.compat.kopf.attempts import Attempts, next_call
from levelog.compat.kopf.kinds.changing import again_at
from levelog.compat.kopf.kinds.declaring import AttemptedHandler
from levelog.effects import Call
from levelog.handlers.timers import Tick, TimerHandler
from levelog.levels import Level


class PacedHandler(AttemptedHandler, TimerHandler):
    """A function of a Kopf file that is called for each object now and then, with keyword arguments."""

    result = dict[str, Any] | None

    def __init__(
        self,
        name: str,
        attempts: Attempts,
        *,
        interval: timedelta,
        initial_delay: timedelta,
        idle: timedelta | None,
        sharp: bool,
    ) -> None:
        self.every, self.initial_delay, self.idle, self.sharp = interval, initial_delay, idle, sharp
        declared = attempts.declared
        code = (attempts.id, declared.limits, declared.param)
        self.take(name, attempts, "tick", code, give_up_after=declared.limits.timeout)
        self.function = self._run

    def again(self, last: Call[Tick, Any], now: datetime) -> Level[Any] | None:
        """The level of an object for which the last call raised, and is made again; None: it did not raise."""
        found = next_call(last, self.attempts.declared.limits, now)
        if found is None:
            return None
        due, before = found
        level = Level[Any](desired=last.request.due, actual=msgspec.to_builtins(before))
        if now < due and not before.is_over:
            level.recheck_at, level.reason = due, again_at(due, before)
        return level

    def carried(self, level: Level[Any]) -> dict[str, Any] | None:
        """What the next call goes on from; nothing where the last one gave up and somebody wants another."""
        found = super().carried(level)
        return None if found and found.get("is_over") and level.is_asked_for else found

    def words(self, tick: Tick) -> dict[str, Any]:  # noqa: ARG002 - handlers of this kind are told more of it
        """What only handlers of this kind are told."""
        return {}

    def _run(self, tick: Tick, retry: int, started: datetime) -> Any:
        return self.attempts.run(tick.object, retry, started, self.words(tick), tick.carried)
