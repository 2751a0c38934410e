"""Edge handlers, as `@op.on` registers them: a view of what was handled, and an effect that calls the function."""

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from levelog.calls.mappings import plain
from levelog.edges import (
    Diff,
    Edge,
    Reason,
    diff_of,
    essence,
    flat,
    handled_object,
    keys_of,
    under,
    value_at,
)
from levelog.effects import EFFECT_TIME, MOST_EDGE_BYTES, Call, EffectHandler, nothing_of, nothing_of_async
from levelog.errors import OperatorError
from levelog.handlers.callnames import HANDLED
from levelog.handlers.fingerprints import fingerprint, value_fingerprint
from levelog.handlers.indexers import IndexHandler
from levelog.handlers.injection import Given, Injections, Lender, injections, shown
from levelog.handlers.readers import ObjectReader, object_reader, require_field
from levelog.handlers.signatures import (
    declared,
    holds_intents,
    parameters,
    require_function,
    require_max_concurrency,
    require_retries,
    require_time,
    type_hints,
    yields,
)
from levelog.handlers.views import ReconcileHandler, ViewHandler, Writes, WrittenClass, inspect_writes
from levelog.handlers.yielding import Yielded, Yields, in_full, in_full_async, last_yielding
from levelog.indices import Index
from levelog.intents import Intent, call
from levelog.levels import Level, Levels
from levelog.resources import ResourceBase, refuse_external
from levelog.selectors import Presence, Selector
from levelog.wire.canonical import digest

IS_HANDLED: Final = "its deletion is handled"
IS_OPEN: Final = "its deletion is not handled"
"""The two sides of a level of an object that is deleted, or being deleted."""
END: Final = "deleted"
"""Name of the call for the end of an object."""
Phase: TypeAlias = Literal["waits", "held"]
"""Of an object that its operator's finalizer has to be put on first, or that is being deleted and has it."""
KNOWN: Final = "known"
"""Name of the call that notes that an object is about to be handled for the first time."""
OF_EDGES: Final = (Given.KEY, Given.RETRY, Given.STARTED, Given.LOGGER, Given.SETTINGS)
OF_CALLS: Final = (Given.KEY, Given.RETRY, Given.STARTED)
"""What each call gives anew; parameters of the effects that call handlers."""

_CODE: Final = "edges 6"
"""Stands for this module in fingerprints: raised when the same objects lead to other calls."""
_TOLD: Final[Mapping[str, str]] = {"reason": "str", "diff": "Diff", "old": "", "new": ""}
"""What the edge says, by the parameter that asks for it, and how that is annotated; empty: as the object."""


class CallOptions(Struct, frozen=True, kw_only=True):
    """What the decorators take of all functions that are called for objects."""

    of: type[ResourceBase] | None = None
    selector: Selector = Selector()
    timeout: timedelta = EFFECT_TIME
    retries: int | None = None
    """How often it is tried again after an error; None: for ever."""
    backoff: timedelta | None = None
    """Before it is; None: longer each time, up to what those who make the calls wait at most."""
    max_concurrency: int | None = None
    """Calls that run at a time in one process; None: as many as there is room for."""


class EdgeOptions(CallOptions, frozen=True, kw_only=True):
    """What they take of those whose calls are recorded."""

    field: str = ""
    """JSON pointer; empty: all of the object."""
    value: Any = UNSET
    """Filters on the value of the field: a literal, PRESENT, ABSENT or a function of it."""
    old: Any = UNSET
    new: Any = UNSET
    since: datetime | None = None
    """Objects that were created before were there before the handler; None: it takes all for new."""
    give_up_after: timedelta | None = None
    """Over all attempts, since the call was decided; None: never."""
    writes: Writes | None = None
    """What it may yield intents for; None: it yields none. Of a function that does not yield: what its calls write."""
    finalizer: bool = False
    """The object stays until its end is handled."""


class EdgeHandler:
    """A function that is called for edges of the objects of one class, with its options and what it is given."""

    result: Any = None
    """Type of the stored result of a call; None: nothing is stored."""
    is_yielding: bool = False
    """Whether the function is a generator, of intents."""
    written: tuple[WrittenClass, ...] = ()
    """What it says that it yields intents for."""

    def __init__(
        self, function: Callable[..., Any], reasons: frozenset[Reason], options: EdgeOptions, lender: Lender
    ) -> None:
        """Check a function's signature. Raises OperatorError naming the function and what is wrong."""
        require_function(function, "handler")
        self.name = function.__name__
        self.function = function
        self.reasons = reasons
        self.options = options
        kind = "handler"
        if yields(function):
            self.is_yielding, self.result = True, Yielded
        require_time(function, kind, options.timeout)
        require_options(f"handler {self.name}", options)
        self._hints = type_hints(function)
        if holds_intents(self._hints.get("return")) and not self.is_yielding:
            raise OperatorError(f"handler {self.name}: is annotated to return intents: it has to yield them, by itself")
        if options.writes is not None:
            self.written = inspect_writes(f"handler {self.name}", options.writes)
            if not self.is_yielding:
                raise OperatorError(f"handler {self.name}: writes= is for handlers that yield intents, and it does not")
        first, *rest = parameters(function, kind, "object")
        self.reader: ObjectReader = object_reader(
            kind, function, first, self._hints.get(first), options.selector, of=options.of
        )
        refuse_external(f"{kind} {self.name}: its object {first!r}: ", self.reader.cls)
        self.parameter = first
        self._told = [name for name in rest if name in _TOLD]
        for name in self._told:
            self._require_hint(name)
        others = [name for name in rest if name not in _TOLD]
        told = f"its object first, {', '.join(f'{name}: {hint}' if hint else name for name, hint in _TOLD.items())}"
        self.given: Injections = injections(function, kind, others, OF_EDGES, lender, first=told)

    def require_field(self) -> None:
        """Refuse a field that no edge is of. Raises OperatorError."""
        if self.options.field:
            require_field(f"handler {self.name}", self.reader, keys_of(self.options.field))

    @property
    def handled_name(self) -> str:
        """Name of the effect, and of the index of what was handled."""
        return f"{self.name}{HANDLED}"

    @property
    def writes_name(self) -> str:
        """Name of the view of what it yielded and is not written yet."""
        return f"{self.name}_writes"

    @property
    def written_name(self) -> str:
        """Name of the index of the calls whose intents are written."""
        return f"{self.name}_written"

    def _require_hint(self, name: str) -> None:
        hint, wanted = self._hints.get(name), _TOLD[name]
        if hint is None or (wanted == "str" and hint is not str) or (wanted == "Diff" and hint != Diff):
            asked = wanted or ("the type of the field" if self.options.field else f"{self.reader.cls.__name__} | None")
            raise OperatorError(f"handler {self.name}: parameter {name!r} is {shown(hint)}: annotate it with {asked}")

    def shown(self, parent: Any) -> dict[str, Any]:
        """An object as JSON, as the handler takes it."""
        if self.reader.is_plain:
            return {key: parent[key] for key in parent if key != "status"}
        return msgspec.to_builtins(parent)  # type: ignore[no-any-return]

    @property
    def origin(self) -> Callable[..., Any]:
        """The function that its user wrote."""
        return self.function

    @property
    def reads(self) -> Mapping[str, Any]:
        """Other indices that its view reads, with their types."""
        return {}

    def handed(self, parent: Any) -> dict[str, Any]:
        """What a call is handed over of an object."""
        return handled_object(self.shown(parent))

    def diff(self, level: Level[Any]) -> Diff:
        """How the state that is to be handled differs from the one that was."""
        return () if level.actual is None else diff_of(level.actual, level.desired)

    def state(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What the handler handles of an object, flat."""
        values = flat(essence(found))
        return under(values, self.options.field) if self.options.field else values

    def taken(self, content: dict[str, Any]) -> Any:
        """An object as the function takes it. Raises msgspec.ValidationError."""
        return content if self.reader.is_plain else msgspec.convert(content, self.reader.cls)

    def known(self, content: dict[str, Any]) -> dict[str, Any]:
        """What was handled, as this code reads it: a field that a class has now has its default."""
        try:
            return self.shown(self.taken(content))
        except msgspec.ValidationError:  # handled by code whose class read something else
            return content

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
        return edge.reason in self.reasons and all(
            _holds(wanted, value_at(content, options.field))
            for wanted, content in ((options.old, old), (options.new, edge.object))
        )

    def arguments(self, edge: Edge, given: Mapping[Given, Any]) -> dict[str, Any]:
        """The arguments of one call. Raises msgspec.ValidationError for an object that this code cannot read."""
        new = self.taken(edge.object)
        told: dict[str, Any] = {"reason": edge.reason, "diff": edge.diff}
        if self.options.field:
            values = value_at(edge.old, self.options.field), value_at(edge.object, self.options.field)
            told["old"], told["new"] = (None if value is UNSET else value for value in values)
        else:
            told["old"], told["new"] = self._old(edge), new
        return {self.parameter: new, **{name: told[name] for name in self._told}, **self.given.arguments(given)}

    def level(self, found: dict[str, Any], calls: Sequence[Call[Edge, Any]], _read: Mapping[str, Any]) -> Level[Any]:
        """What there is of an object, against what the last of the calls has handled; `_read` of its indices."""
        state, options = self.state(found), self.options
        if not calls:
            is_due = self.begins(found) and _holds(options.value, value_at(found, options.field))
            return Level(desired=state, actual=None if is_due else state)
        handled = self.state(self.known(calls[0].request.object))
        is_due = "update" in self.reasons and _holds(options.value, value_at(found, options.field))
        return Level(desired=state, actual=handled if is_due else state)

    def is_ended(self, calls: Sequence[Call[Edge, Any]]) -> bool:
        """Tell whether one of the calls has handled the end of the object."""
        return any(each.name == END for each in calls)

    def hold(
        self, level: Level[Any], found: dict[str, Any], calls: Sequence[Call[Edge, Any]], read: Mapping[str, Any]
    ) -> None:
        """Note in the level of an object that is being deleted what a call has left that did not handle its end."""

    def is_hurried(self, level: Level[Any]) -> bool:  # noqa: ARG002 - as below
        """Tell whether a level only waits for a time, and somebody does not want to."""
        return False

    def carried(self, level: Level[Any]) -> dict[str, Any] | None:  # noqa: ARG002 - handlers of another kind look there
        """What the next call goes on from."""
        return None

    def _old(self, edge: Edge) -> Any:
        old = edge.old
        return None if old is None else self.taken(old)


class Keeping(Protocol):
    """What keeps its objects until something has ended: an edge handler, or a daemon."""

    name: str
    options: EdgeOptions
    reader: ObjectReader

    def taken(self, content: Any) -> Any:
        """An object as the function takes it. Raises msgspec.ValidationError for one that this code cannot read."""
        ...


def is_wanted(handler: Keeping, found: Mapping[str, Any]) -> bool:
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


def edge_effect(handler: EdgeHandler, lender: Lender, yielding: Yields | None = None) -> EffectHandler:
    """The effect that calls the function. What it raises is tried again, and given up for what is newer."""
    function = handler.function
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)

    def arguments(edge: Edge, *given: Any) -> dict[str, Any]:
        return handler.arguments(edge, dict(zip(OF_CALLS, given, strict=True)))

    def kept(edge: Edge, result: Any) -> Any:
        if yielding is not None:
            return yielding.kept(result, is_end=edge.reason == "delete")
        return result if handler.result is not None else nothing_of(result)

    async def handle_async(edge: Edge, idempotency_key: str, retry: int, started: datetime) -> Any:
        if edge.is_noted:
            return None
        result = function(**arguments(edge, idempotency_key, retry, started))
        return kept(edge, await in_full_async(result) if yielding is not None else await result)

    def handle(edge: Edge, idempotency_key: str, retry: int, started: datetime) -> Any:
        if edge.is_noted:
            return None
        result = function(**arguments(edge, idempotency_key, retry, started))
        if handler.result is None and isinstance(result, Coroutine):  # of an async function in a plain wrapper
            return nothing_of_async(result)
        return kept(edge, in_full(result) if yielding is not None else result)

    effect: Callable[..., Any] = handle_async if is_async else handle
    effect.__name__ = handler.handled_name
    effect.__annotations__["return"] = handler.result
    made = EffectHandler.inspect(effect, lender, timeout=handler.options.timeout)
    made.origin, made.title = handler.origin, f"handler {handler.name}"
    made.most_bytes, made.is_superseded = MOST_EDGE_BYTES, True
    made.first_argument = lambda edge: UNSET if edge.is_noted else handler.taken(edge.object)
    options, made.yielding = handler.options, yielding
    made.limit(lender, retries=options.retries, backoff=options.backoff, give_up_after=options.give_up_after)
    made.max_concurrency = handler.options.max_concurrency
    made.notes_failure, made.in_line = lambda edge: edge.is_held, (KNOWN, END)
    made.fingerprint = digest(_CODE, fingerprint(handler.origin), handler.reader.fingerprint, handler.given.fingerprint)
    return made


def edge_view(
    handler: EdgeHandler,
    inspect_view: Callable[[Callable[..., Any]], ViewHandler],
    finalizing: IndexHandler | None = None,
) -> ViewHandler:
    """The view of what the handler has handled of an object, against what there is.

    `finalizing` tells of objects that a finalizer has to be put on first, and of those that it holds; None: of none.
    """
    index = handler.handled_name

    def view(parent: Any, **read: Any) -> Level[Any]:
        found = handler.shown(parent)
        uid = found["metadata"]["uid"]
        calls: list[Call[Edge, Any]] = list(read[index][uid])
        phases: list[Phase] = list(read["finalizing"][uid]) if finalizing is not None else []
        if handler.options.finalizer and found["metadata"].get("deletionTimestamp"):
            is_open = "held" in phases and not handler.is_ended(calls)
            level: Level[Any] = Level(desired=IS_HANDLED, actual=IS_OPEN if is_open else IS_HANDLED)
            if is_open:
                handler.state(found)  # a read of all that the call is given, so that it is given the newest
                handler.hold(level, found, [each for each in calls if each.name == END], read)
        else:
            level = handler.level(found, [each for each in calls if not each.name], read)
            if "waits" in phases and level.drift:
                level.reason = "waits for its finalizer to be put on"
            level.is_known = any(each.name == KNOWN for each in calls)
        if handler.is_yielding and level.drift and _is_writing(handler, uid, calls, read):
            level.reason = f"waits until what it yielded last is written: see {handler.writes_name}"
        return level

    hint = Mapping[str, Any] if handler.reader.is_plain else handler.reader.cls
    annotations: dict[str, Any] = {"parent": hint, index: called(handler), **handler.reads}
    if finalizing is not None:
        annotations["finalizing"] = Index[str, Phase]
    if handler.is_yielding:
        annotations |= {handler.written_name: Index[str, Call[str, None]], "levels": Levels}
    made = inspect_view(declared(view, handler.name, annotations, Level[Any]))
    made.is_made = True
    made.stands_on = (handler.writes_name,) if handler.is_yielding else ()
    options = handler.options
    filters = value_fingerprint((options.field, options.value, options.old, options.new, str(options.since)))
    held = () if finalizing is None else (str(options.finalizer), finalizing.fingerprint)
    made.fingerprint = digest(_CODE, handler.name, handler.reader.fingerprint, *sorted(handler.reasons), filters, *held)
    return made


def _is_writing(handler: EdgeHandler, uid: str, calls: Sequence[Call[Edge, Any]], read: Mapping[str, Any]) -> bool:
    """Tell whether what the last call yielded is being written: neither written, nor refused."""
    last = last_yielding(calls)
    if last is None or any(each.request == last.idempotency_key for each in read[handler.written_name][uid]):
        return False
    standing = read["levels"].get(handler.writes_name)
    return standing is None or standing.status != "failed"


def end_view(handler: EdgeHandler, inspect_view: Callable[[Callable[..., Any]], ViewHandler]) -> ViewHandler:
    """The view of deleted objects that the handler knows, and that its filters took as they were last."""
    index = handler.handled_name

    def view(parent: Any, **read: Any) -> Level[Any]:
        calls: list[Call[Edge, Any]] = list(read[index][parent["metadata"]["uid"]])
        is_open = bool(calls) and not any(each.name == END for each in calls) and is_wanted(handler, parent)
        return Level(desired=IS_HANDLED, actual=IS_OPEN if is_open else IS_HANDLED)

    annotations: dict[str, Any] = {"parent": Mapping[str, Any], index: called(handler)}
    made = inspect_view(declared(view, f"{handler.name}_deleted", annotations, Level[Any]))
    made.is_of_deleted = made.is_made = True
    made.fingerprint = digest(_CODE, handler.name, "deleted", handler.reader.fingerprint)
    return made


def edge_writer(handler: EdgeHandler, view: ViewHandler, effect: EffectHandler, lender: Lender) -> ReconcileHandler:
    """The reconcile function of such a view: it asks for the call."""
    is_end = view.is_of_deleted

    async def act(parent: Any, level: Level[Any]) -> list[Intent]:  # async, so that it needs no thread
        if level.reason and not handler.is_hurried(level):
            return []
        found = handler.handed(parent)
        if is_end or level.desired == IS_HANDLED:
            edge = Edge(reason="delete", object=found, is_held=not is_end, carried=handler.carried(level))
            return [call(effect.function, msgspec.structs.replace(edge, is_noted=not handler.fits(edge)), name=END)]
        reason = handler.beginning(found) if level.actual is None else "update"
        edge = Edge(reason=reason, object=found, diff=handler.diff(level), carried=handler.carried(level))
        noted = msgspec.structs.replace(edge, is_noted=True)
        if not handler.fits(edge):
            return [call(effect.function, noted)]
        if level.actual is None and "delete" in handler.reasons and not level.is_known:
            known = call(effect.function, noted, name=KNOWN)  # it may fail halfway, and then be deleted
            if handler.is_yielding:  # what is yielded is written while no other call comes in between
                return [known]
            return [known, call(effect.function, edge)]
        return [call(effect.function, edge)]

    hint = Mapping[str, Any] if handler.reader.is_plain else handler.reader.cls
    act.__annotations__["parent"] = hint
    act.__name__ = f"{view.name}.call"
    made = ReconcileHandler.inspect(act, view, {} if handler.is_yielding else handler.options.writes or {}, lender)
    made.fingerprint, made.needs_status = digest(_CODE, view.name), False
    return made


def called(handler: EdgeHandler) -> Any:
    """Type of the index of what the handler has handled."""
    result: Any = handler.result
    return Index[str, Call[Edge, result]]


def require_call_options(what: str, options: CallOptions) -> None:
    """Refuse options that say nothing of any function. Raises OperatorError; `what` they are of."""
    require_retries(what, options.retries, options.backoff)
    require_max_concurrency(what, options.max_concurrency)


def require_options(what: str, options: EdgeOptions) -> None:
    """Refuse options that say nothing. Raises OperatorError; `what` they are of."""
    filtered = [each for each in ("value", "old", "new") if getattr(options, each) is not UNSET]
    if filtered and not options.field:
        raise OperatorError(f"{what}: {filtered[0]}= filters on the value of a field: say which, field=…")
    if not isinstance(options.finalizer, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OperatorError(f"{what}: finalizer={options.finalizer!r} is neither True nor False")
    since, limit = options.since, options.give_up_after
    if since is not None and (not isinstance(since, datetime) or since.tzinfo is None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OperatorError(f"{what}: since={since!r} is not a datetime with a time zone")
    require_call_options(what, options)
    if limit is not None and (not isinstance(limit, timedelta) or limit <= timedelta(0)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OperatorError(f"{what}: give_up_after={limit!r} is not a timedelta above zero")


def _holds(wanted: Any, value: Any) -> bool:
    """Tell whether a value is what a filter asks for."""
    match wanted:
        case _ if wanted is UNSET:
            return True
        case Presence.PRESENT:
            return value is not UNSET
        case Presence.ABSENT:
            return value is UNSET
        case _ if callable(wanted):
            return bool(wanted(None if value is UNSET else value))
        case _:
            return bool(value == wanted)
