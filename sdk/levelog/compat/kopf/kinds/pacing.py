"""Kopf's timers, run as levelog's."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from levelog.calls.mappings import plain
from levelog.compat.kopf.attempts import Attempts, next_call
from levelog.compat.kopf.kinds.changing import LONGEST
from levelog.compat.kopf.options import Declaration
from levelog.compat.kopf.patches import WRITES
from levelog.effects import Call
from levelog.handlers.edgehandlers import EdgeOptions
from levelog.handlers.fingerprints import value_fingerprint
from levelog.handlers.injection import Given, Injections
from levelog.handlers.readers import ObjectReader
from levelog.handlers.timers import Tick, TimerHandler
from levelog.selectors import Selector
from levelog.wire.canonical import digest


class PacedHandler(TimerHandler):
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
        self.name = name
        self.attempts = attempts
        self.filters = declared.filters
        self.every, self.initial_delay, self.idle, self.sharp = interval, initial_delay, idle, sharp
        self.function = self._wrapped()
        limits = attempts.limits
        selector = Selector() if self.filters.takes_all else Selector(when=self._takes)
        self.options = EdgeOptions(
            of=declared.cls,
            selector=selector,
            timeout=limits.timeout or LONGEST,
            retries=limits.again,
            give_up_after=limits.timeout,
            backoff=declared.backoff,
            writes={declared.cls: WRITES},
        )
        self.reader = ObjectReader(declared.cls, selector, is_plain=True)
        self.parameter = "tick"
        code = (self.filters, attempts.id, limits, attempts.param)
        self.given = Injections({}, {}, {}, digest(value_fingerprint(code)))

    @property
    def origin(self) -> Callable[..., Any]:
        """The function that its user wrote."""
        return self.attempts.function

    def handed(self, parent: Any) -> dict[str, Any]:
        """All of an object, with what its class says where a list of the API leaves that out."""
        resource = self.reader.resource
        return {"apiVersion": resource.api_version, "kind": resource.kind, **plain(parent)}

    def arguments(self, tick: Tick, given: Mapping[Given, Any]) -> dict[str, Any]:
        """The arguments of the function that stands around the user's."""
        return {"tick": tick, "key": given[Given.KEY], "retry": given[Given.RETRY], "started": given[Given.STARTED]}

    def left(self, last: Call[Tick, Any], now: datetime) -> tuple[datetime, dict[str, Any]] | None:
        """When the last call is made again, and what it has left; None: it did not raise, or left nothing."""
        found = next_call(last, self.attempts.limits, now)
        return None if found is None else (found[0], msgspec.to_builtins(found[1]))

    def told(self, tick: Tick) -> dict[str, Any]:  # noqa: ARG002 - handlers of this kind are told more of it
        """What only handlers of this kind are told."""
        return {}

    def _takes(self, body: Mapping[str, Any]) -> bool:
        return self.filters.take(self.attempts.object_arguments(plain(body)))

    def _wrapped(self) -> Callable[..., Any]:
        def plain_call(tick: Tick, key: str, retry: int, started: datetime) -> Any:
            return self.attempts.run(tick.object, key, retry, started, self.told(tick), tick.carried)

        async def async_call(tick: Tick, key: str, retry: int, started: datetime) -> Any:
            return await self.attempts.run_async(tick.object, key, retry, started, self.told(tick), tick.carried)

        made: Callable[..., Any] = async_call if self.attempts.is_async else plain_call
        made.__name__ = self.name
        return made
