"""Kopf's handlers of changes as handlers of edges: which edges they are called for, and what they are told of one."""

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import UNSET, UnsetType

from levelog.calls.mappings import plain
from levelog.compat.kopf.attempts import Attempts, forget
from levelog.compat.kopf.filters import Filters, holds
from levelog.compat.kopf.given.keywords import Patch, kopf_diff, kopf_essence
from levelog.edges import Diff, Edge, Reason, diff_of, essence, flat, under, value_at
from levelog.effects import Call
from levelog.handlers.edgehandlers import EdgeHandler, EdgeOptions
from levelog.handlers.fingerprints import value_fingerprint
from levelog.handlers.injection import Given, Injections
from levelog.handlers.readers import ObjectReader
from levelog.indices import Index
from levelog.levels import Level
from levelog.resources import ResourceBase
from levelog.selectors import Selector
from levelog.wire.canonical import digest

LONGEST: Final = timedelta(hours=1)
"""Of one call without a `timeout`."""
STATUS: Final = "@status"
"""Stands in a level for the status that a waiting call is given, so that a newer one is given to it."""


class ChangeHandler(EdgeHandler):
    """A function of a Kopf file that is called for changes of objects, with keyword arguments."""

    result = dict[str, Any] | None

    def __init__(
        self,
        name: str,
        cls: type[ResourceBase],
        reasons: frozenset[Reason],
        attempts: Attempts,
        filters: Filters,
        *,
        field: str,
        needs_change: bool,
        finalizer: bool,
        backoff: timedelta | None,
        marks: str,
        before: "ChangeHandler | None" = None,
    ) -> None:
        """`marks` is the index of patches that were written; `before` the handler whose place it takes."""
        self.name = name
        self.reasons = reasons
        self.attempts = attempts
        self.filters = filters
        self.marks = marks
        self.needs_change = needs_change
        self.function = before.function if before is not None else self._wrapped()
        limits = attempts.limits
        self.options = EdgeOptions(
            of=cls,
            selector=Selector() if filters.takes_all else Selector(when=self._takes),
            field=field,
            timeout=limits.timeout or LONGEST,
            retries=limits.again,
            give_up_after=limits.timeout,
            backoff=backoff,
            finalizer=finalizer,
        )
        self.reader = ObjectReader(cls, self.options.selector, is_plain=True)
        self.parameter = "edge"
        code = (filters, field, needs_change, attempts.id, limits, attempts.param)
        self.given = Injections({}, {}, {}, digest(value_fingerprint(code)))

    @property
    def origin(self) -> Callable[..., Any]:
        """The function that its user wrote."""
        return self.attempts.function

    @property
    def reads(self) -> Mapping[str, Any]:
        """The patches that were written: a handler is called again once its last one is.

        The indices that the function looks up are not read, but have to be filled first.
        """
        filled = dict.fromkeys(self.attempts.indices, Index[Any, Any])
        return {self.marks: Index[str, Call[str, None]], **filled}

    def shown(self, parent: Any) -> dict[str, Any]:
        """All of an object."""
        return {key: parent[key] for key in parent}

    def handed(self, parent: Any) -> dict[str, Any]:
        """All of an object, with what its class says where a list of the API leaves that out."""
        resource = self.reader.resource
        return {"apiVersion": resource.api_version, "kind": resource.kind, **plain(parent)}

    def state(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What Kopf compares; the status only where the handler is of a field of it."""
        field = self.options.field
        if field.startswith("/status"):
            return under(flat(essence(found)), field)
        values = flat(kopf_essence(found))
        return under(values, field) if field else values

    def known(self, content: dict[str, Any]) -> dict[str, Any]:
        """What was handled, as it was."""
        return content

    def level(self, found: dict[str, Any], calls: Sequence[Call[Edge, Any]], read: Mapping[str, Any]) -> Level[Any]:
        """What there is of an object against what was handled; a handler waits until its last patch is written."""
        level = super().level(found, calls, read)
        if not level.drift:
            return level
        if calls and calls[0].result is not None:
            marks = {each.name: each.request for each in read[self.marks][found["metadata"]["uid"]]}
            if marks.get(self.name) != calls[0].idempotency_key:
                level.waits = "waits for its last patch to be written"
                return level
        if "status" in found and level.desired is not None:
            waiting = Level[Any](desired={**level.desired, STATUS: plain(found["status"])}, actual=level.actual)
            waiting.waits = level.waits
            return waiting
        return level

    def diff(self, level: Level[Any]) -> Diff:
        """How the state that is to be handled differs from the one that was."""
        desired = {path: value for path, value in level.desired.items() if path != STATUS}
        return () if level.actual is None else diff_of(level.actual, desired)

    def fits(self, edge: Edge) -> bool:
        """Tell whether the function is called for an edge; else it is only noted."""
        if edge.reason not in self.reasons:
            return False
        body, (old, new, diff) = edge.object, self.told(edge)
        filters, field = self.filters, self.options.field
        kwargs = {**self.attempts.object_arguments(body), "old": old, "new": new, "diff": diff, "reason": edge.reason}
        if field and not self._has_field(edge, old, new, kwargs):
            return False
        if filters.old is not UNSET and not holds(filters.old, old, kwargs):
            return False
        if filters.new is not UNSET and not holds(filters.new, new, kwargs):
            return False
        if filters.is_of_edges and filters.when is not None:
            told = {"retry": 0, "started": None, "runtime": timedelta(0), "patch": Patch()}
            return bool(filters.when(**{**told, **kwargs}))
        return True

    def arguments(self, edge: Edge, given: Mapping[Given, Any]) -> dict[str, Any]:
        """The arguments of the function that stands around the user's."""
        return {"edge": edge, "key": given[Given.KEY], "retry": given[Given.RETRY], "started": given[Given.STARTED]}

    def told(self, edge: Edge) -> tuple[Any, Any, Any]:
        """`old`, `new` and `diff` as Kopf gives them: of a handler of a field, the field's."""
        new: Any = kopf_essence(edge.object)
        old: Any = None if edge.reason == "create" else kopf_essence(_before(edge))
        if field := self.options.field:
            if field.startswith("/status"):
                new, old = edge.object, None if edge.reason == "create" else _before(edge)
            old, new = (_or_none(value_at(content, field)) for content in (old, new))
        return old, new, kopf_diff(old, new)

    def _has_field(self, edge: Edge, old: Any, new: Any, kwargs: Mapping[str, Any]) -> bool:
        values = (old, new) if edge.reason == "update" else (new,)
        if self.filters.value is not UNSET and not any(holds(self.filters.value, each, kwargs) for each in values):
            return False
        if self.needs_change and edge.reason != "delete":
            return bool(old != new)
        return self.filters.value is not UNSET or any(each is not None for each in values)

    def _takes(self, body: Mapping[str, Any]) -> bool:
        return self.filters.take(self.attempts.object_arguments(plain(body)))

    def _wrapped(self) -> Callable[..., Any]:
        """The function that the effect calls, for the handler as it is then."""

        def told(edge: Edge) -> dict[str, Any]:
            old, new, diff = self.told(edge)
            return {"reason": edge.reason, "old": old, "new": new, "diff": diff}

        def plain_call(edge: Edge, key: str, retry: int, started: datetime) -> Any:
            result = self.attempts.run(edge.object, key, retry, started, told(edge))
            return self._kept_later(edge, result) if isinstance(result, Coroutine) else self._kept(edge, result)

        async def async_call(edge: Edge, key: str, retry: int, started: datetime) -> Any:
            result = await self.attempts.run_async(edge.object, key, retry, started, told(edge))
            return self._kept(edge, result)

        made: Callable[..., Any] = async_call if self.attempts.is_async else plain_call
        made.__name__ = self.name
        return made

    async def _kept_later(self, edge: Edge, result: Coroutine[Any, Any, dict[str, Any] | None]) -> Any:
        return self._kept(edge, await result)

    def _kept(self, edge: Edge, result: dict[str, Any] | None) -> dict[str, Any] | None:
        if edge.reason == "delete":  # there is nothing left to be patched
            forget(edge.object)
            return None
        return result


def _before(edge: Edge) -> dict[str, Any]:
    """The object as it was handled before."""
    return edge.old or {"metadata": {}}


def _or_none(value: Any | UnsetType) -> Any:
    return None if value is UNSET else value


def identifier(text: str) -> str:
    """A name of a view for the id of a handler."""
    return re.sub(r"\W", "_", text).strip("_") or "handler"
