"""Kopf's change handlers: which edges they are called for, and their arguments."""

from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from levelog.compat.kopf.attempts import KopfAdapter
from levelog.compat.kopf.given.keywords import NOT_CALLED, Patch, kopf_diff, kopf_essence
from levelog.compat.kopf.given.memos import forget_memo
from levelog.compat.kopf.handlererrors import PermanentError, TemporaryError
from levelog.edges import Edge, Reason, essence, flat, under, value_or_none
from levelog.effects import Call
from levelog.layers import CallResult, next_call
from levelog.selectors import holds
from levelog_base.wire.canonical import pointer_to


class ChangeAdapter(KopfAdapter):
    """Calls a function of a Kopf file for changes of objects."""

    field: str = ""
    """JSON pointer; empty: all of the object."""
    reasons: frozenset[Reason] = frozenset()
    finalizer: bool = False
    needs_change: bool = False
    """The field has to differ."""
    follows: frozenset[str] = frozenset()
    """Ids of those above it, for whose results it may wait."""

    @property
    def calls_name(self) -> str:
        """Name of the index of its calls."""
        return f"{self.name}_handled"

    def state(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What Kopf compares; the status only where the handler is of a field of it."""
        if self.field.startswith("/status"):
            return under(flat(essence(found)), self.field)
        values = flat(kopf_essence(found))
        return under(values, self.field) if self.field else values

    def is_creating(self, calls: Sequence[Call[Edge, Any]], now: datetime) -> bool:
        """Tell whether the last of its calls was for a new object, raised, and is made again."""
        return any(each.request.reason == "create" for each in calls[:1]) and self._is_tried(calls, now)

    def is_about_to_be_called(self, parent: Mapping[str, Any], calls: Sequence[Call[Edge, Any]], now: datetime) -> bool:
        """Tell whether an object is new or another to it, or its last call is made again."""
        is_taken = self.filters.takes_all or self._takes(parent)
        if not calls:
            return "create" in self.reasons and is_taken
        is_other = self.state(parent) != self.state(calls[0].request.object)
        return self._is_tried(calls, now) or ("update" in self.reasons and is_other and is_taken)

    def _is_tried(self, calls: Sequence[Call[Edge, Any]], now: datetime) -> bool:
        found = next_call(calls[0], self.declared.limits.timeout, now)
        return found is not None and not found[1].is_over

    def fits(self, edge: Edge) -> bool:
        """Tell whether the filters take an edge."""
        body, (old, new, diff) = edge.object, self._change_of(edge)
        filters = self.filters
        kwargs = {**self.object_arguments(body), "old": old, "new": new, "diff": diff, "reason": edge.reason}
        if self.field and not self._has_field(edge, old, new, kwargs):
            return False
        if not filters.take_change(old, new, kwargs):
            return False
        if filters.is_of_edges and filters.when is not None:
            return bool(filters.when(**{**NOT_CALLED, "patch": Patch(), **kwargs}))
        return True

    def _change_of(self, edge: Edge) -> tuple[Any, Any, Any]:
        """`old`, `new` and `diff` as Kopf gives them: of a handler of a field, the field's."""
        before, new = edge.old or {"metadata": {}}, edge.object
        if not self.field.startswith("/status"):
            before, new = kopf_essence(before), kopf_essence(new)
        old: Any = None if edge.reason == "create" else before
        if self.field:
            old, new = (value_or_none(content, self.field) for content in (old, new))
        return old, new, kopf_diff(old, new)

    def _has_field(self, edge: Edge, old: Any, new: Any, kwargs: Mapping[str, Any]) -> bool:
        values = (old, new) if edge.reason == "update" else (new,)
        if self.filters.value is not UNSET and not any(holds(self.filters.value, each, **kwargs) for each in values):
            return False
        if self.needs_change and edge.reason != "delete":
            return bool(old != new)
        return self.filters.value is not UNSET or any(each is not None for each in values)

    def call(self, request: Edge, retry: int, started: datetime) -> Any:
        """Call the function for an edge."""
        old, new, diff = self._change_of(request)
        told = {"reason": request.reason, "old": old, "new": new, "diff": diff}
        result = self.attempt(request.object, retry, started, told, request.carried)
        return self._kept_later(request, result) if isinstance(result, Coroutine) else self._kept(request, result)

    async def _kept_later(self, edge: Edge, result: Coroutine[Any, Any, CallResult | None]) -> CallResult | None:
        return self._kept(edge, await result)

    def _kept(self, edge: Edge, result: CallResult | None) -> CallResult | None:
        """What is kept: of the end of an object nothing once it is handled, since nothing is left to be patched.

        An unfinished call is made again once there is the result of one above it, as Kopf does.
        """
        before = result.left if result is not None else None
        if edge.reason != "delete":
            if result is None or before is None:
                return result
            results = tuple(pointer_to(("status", each)) for each in sorted(self.follows))
            return replace(result, left=replace(before, awaits=results))
        if before is None:
            forget_memo(edge.object)
            return None
        if not edge.is_finalizing:
            raise PermanentError(before.error) if before.is_over else TemporaryError(before.error, before.delay)
        return result
