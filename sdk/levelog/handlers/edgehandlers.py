"""Edge handlers, as `@op.on` registers them: what is handled of an object, and the calls that it needs."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from levelog.edges import Diff, Edge, Reason, diff_of, essence, flat, under, value_at, value_or_none
from levelog.effects import Call, EffectHandler
from levelog.handlers.callnames import HANDLED
from levelog.handlers.fingerprints import value_fingerprint
from levelog.handlers.forobjects import FINALIZING, CalledHandler, CallOptions, DecidedHandler, Phase
from levelog.handlers.indexers import IndexHandler
from levelog.handlers.injection import Given, Lender, shown
from levelog.handlers.outcomes import as_value, carried, delay, is_held, left, next_call, wait_for_patch, without
from levelog.handlers.readers import require_field
from levelog.handlers.signatures import declared, holds_intents, require_flag, yields
from levelog.handlers.viewhandlers import ViewHandler, Writes, WrittenClass, inspect_writes
from levelog.handlers.yielding import Yielded, Yields, last_yielding
from levelog.indices import Index
from levelog.levels import Level, Levels
from levelog.selectors import Presence, Selector, holds
from levelog_base.errors import OperatorError
from levelog_base.mappings import plain
from levelog_base.wire.canonical import digest, keys_of
from levelog_base.wire.projection import merge

if TYPE_CHECKING:
    from levelog.handlers.adapters import Adapter

IS_HANDLED: Final = "its deletion is handled"
IS_OPEN: Final = "its deletion is not handled"
"""The two sides of a level of an object that is deleted, or being deleted."""
END: Final = "deleted"
"""Name of the call for the end of an object."""
KNOWN: Final = "known"
"""Name of the call that notes that an object is about to be handled for the first time."""
_CODE: Final = "edges 6"
"""Stands for this module in fingerprints: raised when the same objects lead to other calls."""
_TOLD: Final[Mapping[str, str]] = {"reason": "str", "diff": "Diff", "old": "", "new": ""}
"""What the edge says, by the parameter that asks for it, and how that is annotated; empty: as the object."""


class EdgeHandler(DecidedHandler):
    """A function that is called for edges of the objects of one class."""

    kind, instead, told = "handler", "", _TOLD
    code, request, suffix, waits_for_finalizer = _CODE, Edge, HANDLED, True
    opening = f"its object first, {', '.join(f'{name}: {hint}' if hint else name for name, hint in _TOLD.items())}"
    yielding: Yields | None = None
    """What it may yield, once the operator has it; None: it yields nothing."""
    written: tuple[WrittenClass, ...] = ()
    """What it says that it yields intents for."""

    def __init__(
        self,
        function: Callable[..., Any],
        reasons: frozenset[Reason],
        options: CallOptions,
        lender: Lender,
        adapter: "Adapter | None" = None,
    ) -> None:
        """Check a function's signature. Raises OperatorError naming the function and what is wrong."""
        super().__init__(function, options, lender, adapter)
        self.reasons, self.deleting = reasons, options.finalizer
        if yields(function):
            self.is_yielding, self.result = True, Yielded
        require_edge_options(self.title, options)
        if holds_intents(self.hints.get("return")) and not self.is_yielding:
            raise OperatorError(f"{self.title}: is annotated to return intents: it has to yield them, by itself")
        if options.writes is not None and adapter is None:
            self.written = inspect_writes(self.title, options.writes)
            if not self.is_yielding:
                raise OperatorError(f"{self.title}: writes= is for handlers that yield intents, and it does not")

    def require_field(self) -> None:
        """Refuse a field that no edge is of. Raises OperatorError."""
        if self.options.field:
            require_field(self.title, self.reader, keys_of(self.options.field))

    @property
    def holds_object(self) -> bool:
        """Whether it handles the end before the object is gone."""
        return self.options.finalizer

    @property
    def names(self) -> Sequence[str]:
        """Those of the writes that it yields, and of the views of deleted objects, too."""
        views = (self.name, self.writes_name) if self.is_yielding else (self.name,)
        ends = [f"{view}_{END}" for view in views if "delete" in self.reasons]
        return (*super().names, *((self.writes_name, self.written_name) if self.is_yielding else ()), *ends)

    @property
    def reads(self) -> Mapping[str, Any]:
        """The time, too, where an adapter may have a call made again; and whether what it yielded is written."""
        now = {"now": datetime} if self.adapter is not None else {}
        writes = {self.written_name: Index[str, Call[str, None]], "levels": Levels} if self.is_yielding else {}
        return {**now, **super().reads, **writes}

    @property
    def writes(self) -> Writes | None:
        """What the calls of an adapter write; what a function yields is written by a view of its own."""
        return None if self.is_yielding else super().writes

    @property
    def fingerprint_parts(self) -> Sequence[str]:
        """Its reasons and filters, and whose finalizer it waits for."""
        options, finalizing = self.options, self.beside.get(FINALIZING)
        filters = value_fingerprint((options.field, options.value, options.old, options.new, str(options.since)))
        held = () if finalizing is None else (str(options.finalizer), finalizing.fingerprint)
        return (*sorted(self.reasons), filters, *held)

    def shown(self, parent: Any) -> dict[str, Any]:
        """An object as the function takes it; all of it where an adapter calls."""
        return super().shown(parent) if self.adapter is None else {key: parent[key] for key in parent}

    def known(self, content: dict[str, Any]) -> dict[str, Any]:
        """What was handed over, as this code reads it."""
        return super().known(content) if self.adapter is None else content

    @property
    def writes_name(self) -> str:
        """Name of the view of what it yielded and is not written yet."""
        return f"{self.name}_writes"

    @property
    def written_name(self) -> str:
        """Name of the index of the calls whose intents are written."""
        return f"{self.name}_written"

    def require_hint(self, name: str) -> None:
        """Refuse a parameter that is not annotated as what an edge says. Raises OperatorError."""
        hint, wanted = self.hints.get(name), _TOLD[name]
        if hint is None or (wanted == "str" and hint is not str) or (wanted == "Diff" and hint != Diff):
            asked = wanted or ("the type of the field" if self.options.field else f"{self.reader.cls.__name__} | None")
            raise OperatorError(f"{self.title}: parameter {name!r} is {shown(hint)}: annotate it with {asked}")

    def diff(self, level: Level[Any]) -> Diff:
        """How the new state differs from the one that was handled last."""
        return () if level.actual is None else diff_of(level.actual, without(level.desired))

    def state(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What the handler handles of an object, flat."""
        if self.adapter is not None:
            return self.adapter.state(found)
        values = flat(essence(found))
        return under(values, self.options.field) if self.options.field else values

    def beginning(self, found: Mapping[str, Any]) -> Reason:
        """Reason of the first edge of an object."""
        since = self.options.since
        created = found["metadata"]["creationTimestamp"]
        return "resume" if since is not None and msgspec.convert(created, datetime) < since else "create"

    def begins(self, found: Mapping[str, Any]) -> bool:
        """Tell whether the first edge of an object has to be handled, or noted for what may follow from it."""
        return self.beginning(found) in self.reasons or not self.reasons.isdisjoint(("update", "delete"))

    def fits(self, edge: Edge) -> bool:
        """Tell whether the function is called for an edge; else it is only noted."""
        options, old = self.options, edge.old
        if self.adapter is not None:
            return edge.reason in self.reasons and self.adapter.fits(edge)
        return edge.reason in self.reasons and all(
            _holds(wanted, value_at(content, options.field))
            for wanted, content in ((options.old, old), (options.new, edge.object))
        )

    def arguments(self, request: Edge, given: Mapping[Given, Any]) -> dict[str, Any]:
        """The arguments of one call. Raises msgspec.ValidationError for an object that this code cannot read."""
        edge, new = request, self.taken(request.object)
        told: dict[str, Any] = {"reason": edge.reason, "diff": edge.diff}
        if self.options.field:
            told["old"], told["new"] = (value_or_none(each, self.options.field) for each in (edge.old, edge.object))
        else:
            told["old"], told["new"] = self._old(edge), new
        return {self.parameter: new, **{name: told[name] for name in self._told}, **self.given.arguments(given)}

    def level(self, parent: Any, read: Mapping[str, Any]) -> Level[Any]:
        """What there is of an object, or that it ends, against what was handled."""
        found = self.shown(parent)
        uid = found["metadata"]["uid"]
        calls: list[Call[Edge, Any]] = list(read[self.calls_name][uid])
        phases: list[Phase] = list(read[FINALIZING][uid]) if FINALIZING in self.beside else []
        if self.options.finalizer and found["metadata"].get("deletionTimestamp"):
            is_open = "finalizing" in phases and not self.is_ended(calls)
            level: Level[Any] = Level(desired=IS_HANDLED, actual=IS_OPEN if is_open else IS_HANDLED)
            if is_open:
                self.state(found)  # a read of all that the call is given, so that it is given the newest
                for each in calls:
                    if each.name == END:
                        self._hold_end(level, found, each, read.get("now", UNSET))
        else:
            level = self._level_of(found, [each for each in calls if not each.name], read)
            if "waits" in phases and level.drift:
                level.reason = "waits for its finalizer to be put on"
            level.is_known = any(each.name == KNOWN for each in calls)
        if self.is_yielding and level.drift and self._is_writing(uid, calls, read):
            level.reason = f"waits until what it yielded last is written: see {self.writes_name}"
        return level

    def _level_of(self, found: dict[str, Any], calls: Sequence[Call[Edge, Any]], read: Mapping[str, Any]) -> Level[Any]:
        """What there is of an object, against what the last of the calls has handled."""
        last, options = next(iter(calls), None), self.options
        if last is not None and (repeated := self._repeated(found, last, read)) is not None:
            return repeated
        state = self.state(found)
        if last is None:
            is_due = self.begins(found) and _holds(options.value, value_at(found, options.field))
            return Level(desired=state, actual=None if is_due else state)
        if left(last) is not None:  # it was called for what is no more
            level = Level[Any](desired=state, actual=self._before(last.request))
        else:
            is_due = "update" in self.reasons and _holds(options.value, value_at(found, options.field))
            level = Level(desired=state, actual=self.state(self.known(last.request.object)) if is_due else state)
        if last.patched and level.drift:
            wait_for_patch(level, last, found, read["now"])
        return level

    def _repeated(self, found: dict[str, Any], last: Call[Edge, Any], read: Mapping[str, Any]) -> Level[Any] | None:
        """The level of an object whose last call is made again; None: there is no such, or the object is another now.

        What the call has patched itself makes no other of it, nor do labels and annotations until it gives up.
        """
        again = next_call(last, self.limits.give_up_after, read.get("now", UNSET))
        if again is None or self.adapter is None:
            return None
        (due, before), seen, state = again, last.request.object, self.state(found)
        patched = merge(seen, last.result.patch)
        if all(_is_another(state, self.state(each), with_metadata=before.is_over) for each in (seen, patched)):
            return None
        level = Level[Any](desired=state | as_value(before), actual=self._before(last.request))
        if not wait_for_patch(level, last, found, read["now"]):
            absent = [each for each in before.awaits if value_at(seen, each) is UNSET]
            is_there = any(value_at(found, each) is not UNSET for each in absent)
            delay(level, last.called_at if is_there else due, before, read["now"])
        return level

    def _hold_end(self, level: Level[Any], found: dict[str, Any], last: Call[Edge, Any], now: datetime) -> None:
        """Have a call for the end of an object made again, if the last one was unfinished, once it is due."""
        if (again := next_call(last, self.limits.give_up_after, now)) is not None:
            level.actual = as_value(again[1])
            if not wait_for_patch(level, last, found, now):
                delay(level, *again, now)

    def _before(self, edge: Edge) -> dict[str, Any] | None:
        """The state that was handled before an edge."""
        return None if edge.old is None else self.state(edge.old)

    def is_ended(self, calls: Sequence[Call[Edge, Any]]) -> bool:
        """Tell whether one of the calls has handled the end of the object."""
        return any(each.name == END and left(each) is None for each in calls)

    def _old(self, edge: Edge) -> Any:
        old = edge.old
        return None if old is None else self.taken(old)

    def _is_writing(self, uid: str, calls: Sequence[Call[Edge, Any]], read: Mapping[str, Any]) -> bool:
        """Tell whether what the last call yielded is being written: neither written, nor refused."""
        last = last_yielding(calls)
        if last is None or any(each.request == last.idempotency_key for each in read[self.written_name][uid]):
            return False
        standing = read["levels"].get(self.writes_name)
        return standing is None or standing.status != "failed"

    def kept(self, asked: Edge, result: Any) -> Any:
        """What was yielded."""
        if self.yielding is None:
            return super().kept(asked, result)
        return self.yielding.kept(result, is_end=asked.reason == "delete")

    def effect(self) -> EffectHandler:
        """The effect that calls the function; calls for an object that ends are in one order with the others."""
        made = super().effect()
        made.yielding = self.yielding
        made.notes_failure, made.in_line = lambda edge: edge.is_finalizing, (KNOWN, END)
        return made

    def view(self, known: Mapping[str, IndexHandler]) -> ViewHandler:
        """The view that compares an object with what the handler has handled of it."""
        made = super().view(known)
        made.stands_on = (self.writes_name,) if self.is_yielding else ()
        return made

    def end_view(self, known: Mapping[str, IndexHandler]) -> ViewHandler:
        """The view of deleted objects that the handler knows, and that its filters took as they were last."""

        def view(parent: Any, **read: Any) -> Level[Any]:
            calls: list[Call[Edge, Any]] = list(read[self.calls_name][parent["metadata"]["uid"]])
            is_open = bool(calls) and not any(each.name == END for each in calls) and is_wanted(self, parent)
            return Level(desired=IS_HANDLED, actual=IS_OPEN if is_open else IS_HANDLED)

        annotations: dict[str, Any] = {"parent": Mapping[str, Any], self.calls_name: self.calls_type}
        function = declared(view, f"{self.name}_{END}", annotations, Level[Any])
        made = ViewHandler(function, known, Selector(), self.lender, deleting=True, of=self.reader.cls)
        made.is_of_deleted = made.is_made = True
        made.fingerprint = digest(_CODE, self.name, "deleted", self.reader.fingerprint)
        return made

    def wanted_calls(self, parent: Any, level: Level[Any], *, is_end: bool) -> Sequence[tuple[Edge, str]]:
        """The call for the edge, or for the end of the object; one before it notes what may yet be deleted."""
        if is_held(level):
            return ()
        found = self.handed(parent)
        if is_end or level.desired == IS_HANDLED:
            edge = Edge(reason="delete", object=found, is_finalizing=not is_end, carried=carried(level))
            return ((msgspec.structs.replace(edge, is_noted=not self.fits(edge)), END),)
        reason = self.beginning(found) if level.actual is None else "update"
        edge = Edge(reason=reason, object=found, diff=self.diff(level), carried=carried(level))
        noted = msgspec.structs.replace(edge, is_noted=True)
        if not self.fits(edge):
            return ((noted, ""),)
        if level.actual is None and "delete" in self.reasons and not level.is_known:
            known = (noted, KNOWN)  # it may fail halfway, and then be deleted
            if self.is_yielding:  # what is yielded is written while no other call comes in between
                return (known,)
            return known, (edge, "")
        return ((edge, ""),)


def _is_another(one: Mapping[str, Any], other: Mapping[str, Any], *, with_metadata: bool) -> bool:
    """Tell whether two flat states differ."""
    return any(with_metadata or not each.path.startswith("/metadata/") for each in diff_of(one, other))


def is_wanted(handler: CalledHandler, found: Mapping[str, Any]) -> bool:
    """Tell whether a handler's filters include an object, so that its deletion is handled."""
    selector, metadata = handler.options.selector, found["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if selector.looks_at_metadata and not selector.matches(labels, annotations):
        return False
    if selector.when is None:
        return True
    try:
        return bool(selector.when(found if handler.reader.is_plain else handler.taken(plain(found))))
    except msgspec.ValidationError:  # it cannot be handled either, and its level says so
        return False


def require_edge_options(what: str, options: CallOptions) -> None:
    """Refuse options that say nothing of edges. Raises OperatorError; `what` they are of."""
    filtered = [each for each in ("value", "old", "new") if getattr(options, each) is not UNSET]
    if filtered and not options.field:
        raise OperatorError(f"{what}: {filtered[0]}= filters on the value of a field: say which, field=…")
    require_flag(what, "finalizer", options.finalizer)
    since = options.since
    if since is not None and (not isinstance(since, datetime) or since.tzinfo is None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OperatorError(f"{what}: since={since!r} is not a datetime with a time zone")


def _holds(wanted: Any, value: Any) -> bool:
    """Tell whether the value of a field, UNSET where there is none, is what a filter asks for."""
    if isinstance(wanted, Presence):  # null is a value
        return (value is not UNSET) is (wanted is Presence.PRESENT)
    return wanted is UNSET or holds(wanted, None if value is UNSET else value)
