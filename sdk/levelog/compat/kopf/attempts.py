"""One call of a Kopf handler: its arguments, its patch, and its errors as levelog takes them."""

from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec

from levelog.compat.kopf.given.events import posted
from levelog.compat.kopf.given.hierarchies import at_hand
from levelog.compat.kopf.given.keywords import Patch, call_keywords, object_keywords
from levelog.compat.kopf.given.lookups import KopfIndex, asked_for
from levelog.compat.kopf.given.memos import Memo, memo_of
from levelog.compat.kopf.given.words import served_resource
from levelog.compat.kopf.handlererrors import InnerPending, judged
from levelog.compat.kopf.options import Declaration
from levelog.compat.kopf.subhandlers import Calls, InnerProgress, merge_patches, registering
from levelog.compat.kopf.tuning import OperatorSettings
from levelog.effects import looked_up
from levelog.intents import EventType
from levelog.layers import Adapter, CallResult, Records, Trigger, Unfinished
from levelog.operator import Operator
from levelog_base.mappings import plain

LONGEST: Final = timedelta(hours=1)
"""Time limit of one call without a `timeout`."""

CODE: Final = "kopf 1"
"""Stands for this layer in fingerprints: raised when the same files lead to others."""


class KopfAdapter(Adapter):
    """Calls one function of a Kopf file, for any of its objects, with keyword arguments."""

    def __init__(
        self,
        handler_id: str,
        name: str,
        declared: Declaration,
        operator: Operator,
        settings: OperatorSettings,
        memo: Memo,
    ) -> None:
        """`memo` is what start-up handlers have put down; an object's begins as a copy of it."""
        super().__init__(declared.function, declared.cls)
        self.id = handler_id
        self.name = name
        self.declared = declared
        self.filters = declared.filters
        self.logger = operator.logger(name)
        self.trigger: Trigger = Records()
        """What has the function called."""
        self.settings = settings
        self.memo = memo
        self.said = self.code = (CODE, declared.filters, handler_id, declared.limits, declared.param)
        resource = declared.cls.resource_type
        self.resource = declared.served or served_resource(resource)
        self.named = {"apiVersion": resource.api_version, "kind": resource.kind}

    @property
    def limits(self) -> dict[str, Any]:
        """Limits of levelog's own for its calls."""
        declared, limits = self.declared, self.declared.limits
        return {
            "timeout": limits.timeout or LONGEST,
            "retries": limits.again,
            "backoff": declared.backoff,
            "give_up_after": limits.timeout,
        }

    @property
    def takes(self) -> Callable[[Mapping[str, Any]], bool] | None:
        """The filters of the decorator."""
        return None if self.filters.takes_all else self._takes

    def _takes(self, body: Mapping[str, Any]) -> bool:
        return self.filters.take(self.object_arguments(plain(body)))

    def whole(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """An object with what its class says where a list of the API leaves that out."""
        return {**self.named, **plain(found)}

    def take_indices(self, names: Iterable[str]) -> bool:
        """Look up those of these indices that the function has parameters for; tells whether one is new to it."""
        before, self.indices = self.indices, asked_for(self.function, names)
        return self.indices != before

    def object_arguments(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments about an object, without those of a call; filters get them too."""
        return {
            **object_keywords(body, memo_of(body, self.memo), self.declared.param, self.logger),
            "settings": self.settings,
            "resource": self.resource,
        }

    def attempt(
        self,
        body: Mapping[str, Any],
        retry: int,
        started: datetime,
        told: Mapping[str, Any],
        carried: Unfinished | None = None,
    ) -> Any:
        """Call the function; what it asks to have written and what it has left, None for neither.

        It is a coroutine that gives that, where the function is async or has registered others.
        """
        before = carried or Unfinished(began=started)
        patch, retry = Patch(), before.retry + retry
        kwargs = {**self.object_arguments(body), **call_keywords(before.began, retry, patch), **told}
        found = looked_up.get({})
        for name in self.indices:
            kwargs.setdefault(name, KopfIndex(partial(_part, found, name)))
        inner = msgspec.convert(before.kept or {}, dict[str, InnerProgress])
        call = _Attempt(body, retry, patch, Calls(f"{self.id}/", kwargs, inner, body), inner, before)
        try:
            with call.at_work():
                result = self.function(**kwargs)
            return (
                self._finish(call, result) if call.calls or isinstance(result, Coroutine) else self._end(call, result)
            )
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            return self.failed(error, call)

    async def _finish(self, call: "_Attempt", result: Any) -> CallResult | None:
        """Wait for what the function does, and call what it has registered, in the loop."""
        try:
            with call.at_work():
                result = await result if isinstance(result, Coroutine) else result
                if call.calls:
                    await call.calls.run()
            return self._end(call, result)
        except Exception as error:  # noqa: BLE001 - as above
            return self.failed(error, call)

    def _end(self, call: "_Attempt", result: Any) -> CallResult | None:
        if result is not None:
            call.patch.status[self.id] = msgspec.to_builtins(result, enc_hook=dict)
        return call.writes()

    def failed(self, error: Exception, call: "_Attempt") -> CallResult | None:
        """The outcome of a call that raised. Raises that where nothing is kept of calls."""
        found = judged(error, self.declared.limits, call.retry + 1, self.declared.backoff)
        if found.is_ignored:
            self.logger.error("%s failed, which is ignored", self.id, exc_info=error)
            return call.writes()
        if found.is_odd:
            self.logger.error("%s failed", self.id, exc_info=error)
        elif not isinstance(found.error, InnerPending):
            what = "gives up" if found.is_final else "is to be called again"
            self.logger.warning("%s %s: %s", self.id, what, found.error)
        written = call.writes() or CallResult()
        left = Unfinished(
            began=call.before.began,
            retry=call.retry + 1,
            error=str(found),
            delay=found.delay,
            is_over=found.is_final,
            kept=msgspec.to_builtins(call.inner) or None,
        )
        return msgspec.structs.replace(written, left=left)


class _Attempt(msgspec.Struct, eq=False):
    """What belongs to one call."""

    body: Mapping[str, Any]
    retry: int
    patch: Patch
    calls: Calls
    inner: dict[str, InnerProgress]
    """How far the handlers are that it registers while it runs, by their ids."""
    before: Unfinished
    events: list[tuple[EventType, str, str]] = []

    def writes(self) -> CallResult | None:
        """The patch and the Events that it asks for, with those of the handlers inside of it; None: nothing."""
        merged = self.patch.merged(self.body)
        for each in self.inner.values():
            merge_patches(merged, each.patch or {})
            each.patch = None
        return CallResult(patch=merged, events=self.events) if merged or self.events else None

    @contextmanager
    def at_work(self) -> Generator[None]:
        """Tell what is called from here on which object it is for."""
        tokens = at_hand.set(self.body), posted.set(self.events)
        try:
            with registering(self.calls):
                yield
        finally:
            at_hand.reset(tokens[0])
            posted.reset(tokens[1])


def _part(found: Mapping[str, Mapping[Any, Collection[Any]]], name: str) -> Mapping[Any, Collection[Any]]:
    return found.get(name, {})
