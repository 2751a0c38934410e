"""Kopf's change handlers as edge handlers: which edges they are called for, and their arguments."""

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET

from levelog.compat.kopf.attempts import LEFT, Attempts, Left, left, next_call
from levelog.compat.kopf.failures import PermanentError, TemporaryError
from levelog.compat.kopf.given.keywords import NOT_CALLED, Patch, kopf_diff, kopf_essence
from levelog.compat.kopf.given.memos import forget_memo
from levelog.compat.kopf.kinds.declaring import AttemptedHandler
from levelog.compat.kopf.patches import SHOWN_WITHIN, is_unseen
from levelog.edges import Diff, Edge, Reason, diff_of, essence, flat, under, value_or_none
from levelog.effects import Call
from levelog.handlers.edgehandlers import END, IS_HANDLED, EdgeHandler, is_wanted
from levelog.levels import Level
from levelog.selectors import holds
from levelog_base.wire.projection import merge

LATER: Final = "is called again at"
UNSEEN: Final = "waits until the log shows what its last call has written"


class ChangeHandler(AttemptedHandler, EdgeHandler):
    """A function of a Kopf file that is called for changes of objects, with keyword arguments."""

    result = dict[str, Any] | None

    def __init__(
        self,
        name: str,
        reasons: frozenset[Reason],
        attempts: Attempts,
        *,
        field: str,
        needs_change: bool,
        finalizer: bool,
        follows: frozenset[str],
        before: "ChangeHandler | None" = None,
    ) -> None:
        """`before` is the handler whose place it takes.

        `follows` are the ids of those above it, for whose results it may wait.
        """
        declared = attempts.declared
        code = (field, needs_change, attempts.id, declared.limits, declared.param)
        given = {"field": field, "finalizer": finalizer, "give_up_after": declared.limits.timeout}
        self.take(name, attempts, "edge", code, **given)
        self.reasons = reasons
        self.follows = follows
        self.needs_change = needs_change
        self.function = before.function if before is not None else self._wrapped()

    @property
    def reads(self) -> Mapping[str, Any]:
        """The time, too."""
        return {"now": datetime, **super().reads}

    def shown(self, parent: Any) -> dict[str, Any]:
        """All of an object."""
        return {key: parent[key] for key in parent}

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
        """What there is of an object against what was handled; a handler waits until its last patch is seen."""
        level = self._again(found, calls[0], read) if calls else None
        if level is not None:
            return level
        if calls and left(calls[0].result) is not None:  # it was called for what is no more
            actual = self._before(calls[0].request)
            level = Level(desired=self.state(found), actual=actual)
        else:
            level = super().level(found, calls, read)
        if level.drift and calls:
            _wait_for_patch(level, calls[0], found, read["now"])
        return level

    def is_creating(self, calls: Sequence[Call[Edge, Any]], now: datetime) -> bool:
        """Tell whether the last of its calls was for a new object, raised, and is made again."""
        return any(each.request.reason == "create" for each in calls[:1]) and self._is_tried(calls, now)

    def is_about_to_be_called(self, parent: Any, calls: Sequence[Call[Edge, Any]], now: datetime) -> bool:
        """Tell whether an object is new or another to it, or its last call is made again."""
        if not calls:
            return "create" in self.reasons and is_wanted(self, parent)
        is_other = self.state(self.shown(parent)) != self.state(calls[0].request.object)
        return self._is_tried(calls, now) or ("update" in self.reasons and is_other and is_wanted(self, parent))

    def _is_tried(self, calls: Sequence[Call[Edge, Any]], now: datetime) -> bool:
        found = next_call(calls[0], self.attempts.declared.limits, now)
        return found is not None and not found[1].is_over

    def is_ended(self, calls: Sequence[Call[Edge, Any]]) -> bool:
        """Tell whether one of the calls has handled the end of the object, and is not made again."""
        return any(each.name == END and left(each.result) is None for each in calls)

    def note_unfinished(
        self, level: Level[Any], found: dict[str, Any], calls: Sequence[Call[Edge, Any]], read: Mapping[str, Any]
    ) -> None:
        """Have a call for the end of the object that raised made again, once it is due and its patch is seen."""
        following = next_call(calls[0], self.attempts.declared.limits, read["now"]) if calls else None
        if following is not None:
            level.actual = {LEFT: msgspec.to_builtins(following[1])}
            _pause(level, calls[0], *following, found, read["now"])

    def carried(self, level: Level[Any]) -> dict[str, Any] | None:
        """What the next call goes on from; nothing where the last one gave up and somebody wants another."""
        side: Any = level.actual if level.desired == IS_HANDLED else level.desired
        found = side.get(LEFT) if isinstance(side, Mapping) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        return None if found and found.get("is_over") and level.is_asked_for else found  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]

    def is_hurried(self, level: Level[Any]) -> bool:
        """Tell whether somebody wants a call now that is made again later."""
        return level.is_asked_for and level.reason.startswith(LATER)

    def _again(self, found: dict[str, Any], last: Call[Edge, Any], read: Mapping[str, Any]) -> Level[Any] | None:
        """The level of an object for which the last call raised; None: there is no such, or the object is another now.

        What the call has patched itself makes no other of it, nor do labels and annotations while it is tried again.
        """
        following = next_call(last, self.attempts.declared.limits, read["now"])
        if following is None:
            return None
        due, before = following
        seen, state = last.request.object, self.state(found)
        patched = merge(seen, last.result.get("patch", {}))
        if all(_differ(state, self.state(each), with_metadata=before.is_over) for each in (seen, patched)):
            return None
        level = Level[Any](desired={**state, LEFT: msgspec.to_builtins(before)}, actual=self._before(last.request))
        results, known = found.get("status") or {}, seen.get("status") or {}
        if any(each in results and each not in known for each in self.follows):
            due = last.called_at  # Kopf would have called it after them
        _pause(level, last, due, before, found, read["now"])
        return level

    def _before(self, edge: Edge) -> dict[str, Any] | None:
        """The state that was handled before an edge."""
        return None if edge.old is None else self.state(edge.old)

    def diff(self, level: Level[Any]) -> Diff:
        """How the new state differs from the one that was handled last."""
        desired = {path: value for path, value in level.desired.items() if path != LEFT}
        return () if level.actual is None else diff_of(level.actual, desired)

    def fits(self, edge: Edge) -> bool:
        """Tell whether the function is called for an edge; else it is only noted."""
        if edge.reason not in self.reasons:
            return False
        body, (old, new, diff) = edge.object, self.change_of(edge)
        filters, field = self.filters, self.options.field
        kwargs = {**self.attempts.object_arguments(body), "old": old, "new": new, "diff": diff, "reason": edge.reason}
        if field and not self._has_field(edge, old, new, kwargs):
            return False
        if filters.old is not UNSET and not holds(filters.old, old, **kwargs):
            return False
        if filters.new is not UNSET and not holds(filters.new, new, **kwargs):
            return False
        if filters.is_of_edges and filters.when is not None:
            return bool(filters.when(**{**NOT_CALLED, "patch": Patch(), **kwargs}))
        return True

    def change_of(self, edge: Edge) -> tuple[Any, Any, Any]:
        """`old`, `new` and `diff` as Kopf gives them: of a handler of a field, the field's."""
        new: Any = kopf_essence(edge.object)
        old: Any = None if edge.reason == "create" else kopf_essence(_before(edge))
        if field := self.options.field:
            if field.startswith("/status"):
                new, old = edge.object, None if edge.reason == "create" else _before(edge)
            old, new = (value_or_none(content, field) for content in (old, new))
        return old, new, kopf_diff(old, new)

    def _has_field(self, edge: Edge, old: Any, new: Any, kwargs: Mapping[str, Any]) -> bool:
        values = (old, new) if edge.reason == "update" else (new,)
        if self.filters.value is not UNSET and not any(holds(self.filters.value, each, **kwargs) for each in values):
            return False
        if self.needs_change and edge.reason != "delete":
            return bool(old != new)
        return self.filters.value is not UNSET or any(each is not None for each in values)

    def _wrapped(self) -> Callable[..., Any]:
        """The function that the effect calls, for the handler as it is then."""

        def told(edge: Edge) -> dict[str, Any]:
            old, new, diff = self.change_of(edge)
            return {"reason": edge.reason, "old": old, "new": new, "diff": diff}

        def call(edge: Edge, retry: int, started: datetime) -> Any:
            result = self.attempts.run(edge.object, retry, started, told(edge), edge.carried)
            return self._kept_later(edge, result) if isinstance(result, Coroutine) else self._kept(edge, result)

        return call

    async def _kept_later(self, edge: Edge, result: Coroutine[Any, Any, dict[str, Any] | None]) -> Any:
        return self._kept(edge, await result)

    def _kept(self, edge: Edge, result: dict[str, Any] | None) -> dict[str, Any] | None:
        if edge.reason != "delete":
            return result
        before = left(result)
        if before is None:  # there is nothing left to be patched
            forget_memo(edge.object)
            return None
        if not edge.is_finalizing:
            raise PermanentError(before.error) if before.is_over else TemporaryError(before.error, before.delay)
        return result


def _pause(
    level: Level[Any], last: Call[Edge, Any], due: datetime, before: Left, found: dict[str, Any], now: datetime
) -> None:
    if not _wait_for_patch(level, last, found, now) and now < due and not before.is_over:
        level.recheck_at = due
        level.reason = again_at(due, before)


def again_at(due: datetime, before: Left) -> str:
    """Why a level waits whose last call raised."""
    return f"{LATER} {due:%H:%M:%S} UTC, attempt {before.retry + 1}: {before.error}"


def _wait_for_patch(level: Level[Any], last: Call[Edge, Any], found: dict[str, Any], now: datetime) -> bool:
    """Have a level wait until its object shows what the last call has written; tells whether it waits."""
    latest = last.called_at + SHOWN_WITHIN
    if now >= latest or not is_unseen(last, found):
        return False
    level.reason, level.recheck_at = UNSEEN, latest
    return True


def _differ(one: Mapping[str, Any], other: Mapping[str, Any], *, with_metadata: bool) -> bool:
    """Tell whether two flat states differ."""
    changes = diff_of(one, other)
    return any(with_metadata or not each.path.startswith("/metadata/") for each in changes)


def _before(edge: Edge) -> dict[str, Any]:
    """The object as it was handled before."""
    return edge.old or {"metadata": {}}


def identifier(text: str) -> str:
    """A name of a view for the id of a handler."""
    return re.sub(r"\W", "_", text).strip("_") or "handler"
