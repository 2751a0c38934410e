"""Functions that are called for objects: the options and signature that all kinds share, and what is made of them."""

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET

from levelog.calls.limits import CallLimits
from levelog.edges import handled_object
from levelog.effects import MOST_EDGE_BYTES, Call, EffectHandler, GiveUp, nothing_of
from levelog.handlers.fingerprints import fingerprint, value_fingerprint
from levelog.handlers.injection import Given, Lender, injections, shown
from levelog.handlers.outcomes import CallResult, patch_of
from levelog.handlers.readers import object_reader
from levelog.handlers.signatures import (
    declared,
    parameters,
    require_function,
    require_time,
    type_hints,
    yields,
)
from levelog.handlers.viewhandlers import ReconcileHandler, ViewHandler, Writes
from levelog.indices import Index
from levelog.intents import Intent
from levelog.levels import Level
from levelog.resources import ResourceBase, refuse_external
from levelog.selectors import Selector, taken_from
from levelog_base.errors import OperatorError
from levelog_base.mappings import plain
from levelog_base.wire.canonical import digest

if TYPE_CHECKING:
    from levelog.handlers.adapters import Adapter

OF_CALLED: Final = (Given.KEY, Given.RETRY, Given.STARTED, Given.LOGGER, Given.SETTINGS)
Phase: TypeAlias = Literal["waits", "finalizing"]
"""An object waits for its operator's finalizer, or is being deleted and still has it."""
InspectView: TypeAlias = Callable[[Callable[..., Any]], ViewHandler]


class CallOptions(CallLimits, frozen=True, kw_only=True):
    """What the decorators take of functions that are called for objects, each of its kinds some."""

    of: type[ResourceBase] | None = None
    selector: Selector = Selector()
    field: str = ""
    """JSON pointer; empty: all of the object."""
    value: Any = UNSET
    """Filters on the value of the field: a literal, PRESENT, ABSENT or a function of it."""
    old: Any = UNSET
    new: Any = UNSET
    since: datetime | None = None
    """Objects that were created before were there before the handler; None: it takes all for new."""
    writes: Writes | None = None
    """What it may yield intents for; None: it yields none. Of a function that does not yield: what its calls write."""
    finalizer: bool = False
    """The object stays until its end is handled."""


def options_of(where: str, said: Mapping[str, Any], *more: str) -> CallOptions:
    """What a decorator says, which also takes these. Raises OperatorError for an option that it does not take."""
    selector, rest = taken_from(where, said, ("of", *CallLimits.__struct_fields__, *more))
    return CallOptions(selector=selector, **rest)


class CalledHandler:
    """A function that is called for the objects of one class, with its options and what it is given."""

    kind: ClassVar[str]
    """As messages name it."""
    instead: ClassVar[str]
    """What to write instead of a function of the kind that yields; empty: it may yield."""
    told: ClassVar[Mapping[str, Any]] = {}
    """What a call says besides, by the parameter that asks for it, and how that is annotated."""
    offered: ClassVar[Sequence[Given]] = OF_CALLED
    opening: ClassVar[str] = "its object first"
    """How messages begin to say what it may take."""
    result: Any = None
    """Type of what is kept of a call; None: nothing is."""
    deleting: bool = False
    """Whether its calls are decided on for objects that are being deleted, too."""

    def __init__(
        self, function: Callable[..., Any], options: CallOptions, lender: Lender, adapter: "Adapter | None" = None
    ) -> None:
        """Check a function's signature. Raises OperatorError naming the function and what is wrong.

        If an adapter calls its user's function, `function` stands for that.
        """
        kind = self.kind
        require_function(function, kind)
        self.name = function.__name__
        self.function = function
        self.operator = lender.operator
        self.options = options
        self.limits = options.within(lender.limits)
        if self.instead and yields(function):
            raise OperatorError(f"{kind} {self.name}: yields; {self.instead}")
        require_limits(f"{kind} {self.name}", options)
        self.hints = type_hints(function)
        first, *rest = parameters(function, kind, "object")
        self.reader = object_reader(kind, function, first, self.hints.get(first), options.selector, of=options.of)
        refuse_external(f"{kind} {self.name}: its object {first!r}: ", self.reader.cls)
        self.parameter = first
        self._told = [name for name in rest if self.tells(name)]
        for name in self._told:
            self.require_hint(name)
        others = [name for name in rest if name not in self._told]
        self.given = injections(function, kind, others, self.offered, lender, first=self.opening)
        self.is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        self.adapter = adapter
        """Calls its user's function in a way of its own; None: it is called as it is annotated."""
        if adapter is not None:
            self.is_async, self.result = adapter.is_async, CallResult | None
            self.given = msgspec.structs.replace(self.given, fingerprint=digest(value_fingerprint(adapter.code)))

    @property
    def title(self) -> str:
        """As errors name it."""
        return f"{self.kind} {self.name}"

    @property
    def origin(self) -> Callable[..., Any]:
        """The function that its user wrote."""
        return self.function if self.adapter is None else self.adapter.function

    @property
    def hint(self) -> Any:
        """How what takes its objects is annotated."""
        return Mapping[str, Any] if self.reader.is_plain else self.reader.cls

    @property
    def calls_name(self) -> str:
        """Name of the effect, and of the index of its calls."""
        raise NotImplementedError

    @property
    def reads(self) -> Mapping[str, Any]:
        """What its view reads besides, with their types: indices that an adapter looks up have to be filled first."""
        return {} if self.adapter is None else dict.fromkeys(self.adapter.indices, Index[Any, Any])

    def tells(self, parameter: str) -> bool:
        """Tell whether each call says what a parameter asks for."""
        return parameter in self.told

    def require_hint(self, name: str) -> None:
        """Refuse a parameter that is not annotated as what a call says. Raises OperatorError."""
        if self.hints.get(name) is not self.told[name]:
            asked, wanted = shown(self.hints.get(name)), self.told[name].__name__
            raise OperatorError(f"{self.title}: parameter {name!r} is {asked}: annotate it with {wanted}")

    def shown(self, parent: Any) -> dict[str, Any]:
        """An object as JSON, as the function takes it; of a plain one not the status."""
        if self.reader.is_plain:
            return {key: parent[key] for key in parent if key != "status"}
        return msgspec.to_builtins(parent)  # type: ignore[no-any-return]

    def handed(self, parent: Any) -> dict[str, Any]:
        """What a call is handed over of an object: all, with what its class says of it, where an adapter calls."""
        if self.adapter is None:
            return handled_object(self.shown(parent))
        resource = self.reader.resource
        return {"apiVersion": resource.api_version, "kind": resource.kind, **plain(parent)}

    def taken(self, content: Any) -> Any:
        """An object as the function takes it. Raises msgspec.ValidationError for one that this code cannot read."""
        return content if self.reader.is_plain else msgspec.convert(content, self.reader.cls)

    def known(self, content: dict[str, Any]) -> dict[str, Any]:
        """What was handed over, as this code reads it: a field that a class has now has its default."""
        try:
            return self.shown(self.taken(content))
        except msgspec.ValidationError:  # by code whose class read something else
            return content

    @cached_property
    def source(self) -> str:
        """Its name in the tables, if its calls leave no records: `operator/function`."""
        return f"{self.operator}/{self.name}"

    @cached_property
    def fingerprint(self) -> str:
        """Digest of its code, and of what it is given."""
        return digest(fingerprint(self.origin), self.reader.fingerprint, self.given.fingerprint)

    def said(self, position: int) -> str:
        """What is called for at a position of calls without records, as messages name it."""
        raise NotImplementedError

    def called_with(self, body: bytes, told: Mapping[str, Any], given: Mapping[Given, Any]) -> dict[str, Any] | None:
        """The arguments of a call without records; None: the filters leave the object out.

        Raises msgspec.ValidationError for an object that this code cannot read, and what a filter raises.
        """
        found = self.reader.take(body)
        if found is None:
            return None
        return {self.parameter: found, **{name: told[name] for name in self._told}, **self.given.arguments(given)}

    def arguments(self, request: Any, given: Mapping[Given, Any]) -> dict[str, Any]:
        """The arguments of one call. Raises as `taken` does."""
        return {self.parameter: self.taken(request.object), **self.given.arguments(given)}


class RecordHandler(CalledHandler):
    """A function that is called for each record of the objects of one class."""

    kind, instead = "event handler", "what has to be written is asked for by a view, or an edge handler"
    told: ClassVar[Mapping[str, Any]] = {
        "is_deleted": bool,
        "origin": str,
        "recorded_at": datetime,
        "sequence": int,
    }

    def said(self, position: int) -> str:
        """A record by its sequence."""
        return f"record {position}"


def calling_effect(
    handler: CalledHandler,
    request: type[Any],
    code: str,
    lender: Lender,
    keep: Callable[[Any, list[Any]], Any] | None = None,
) -> EffectHandler:
    """The effect that calls the function. What it raises is tried again, and given up for what is newer.

    A request has the `object`, and `is_noted` tells whether the function is not called for it. `keep` makes what is
    recorded of a request and all that the function yields; None: it yields nothing.
    """

    def kept(asked: Any, result: Any) -> Any:
        if keep is not None:
            return keep(asked, result)
        return result if handler.result is not None else nothing_of(result)

    async def kept_later(asked: Any, result: Any) -> Any:
        return kept(asked, [each async for each in result] if keep is not None else await result)

    def call(asked: Any, idempotency_key: str, retry: int, started: datetime) -> Any:
        if asked.is_noted:
            return None
        result: Any
        if handler.adapter is not None:
            if asked.carried is not None and asked.carried.is_over:
                raise GiveUp(asked.carried.error)
            result = handler.adapter.call(asked, retry, started)
        else:
            given = {Given.KEY: idempotency_key, Given.RETRY: retry, Given.STARTED: started}
            result = handler.function(**handler.arguments(asked, given))
        if isinstance(result, Coroutine | AsyncIterator):
            return kept_later(asked, result)
        return kept(asked, result if keep is None else list(result))

    call.__annotations__ |= {"asked": request, "return": handler.result}
    made = made_effect(handler, call, code, lender)
    made.is_async = handler.is_async
    made.most_bytes, made.is_superseded = MOST_EDGE_BYTES, True
    made.snapshots = {} if handler.adapter is None else dict.fromkeys(handler.adapter.indices, Any)
    made.first_argument = lambda asked: UNSET if asked.is_noted else handler.taken(asked.object)
    return made


def made_effect(
    handler: CalledHandler, effect: Callable[..., Any], code: str, lender: Lender, *besides: str
) -> EffectHandler:
    """The effect of a handler; `code` and `besides` count in its fingerprint."""
    effect.__name__ = handler.calls_name
    made = EffectHandler(effect, lender, handler.limits)
    made.origin, made.title = handler.origin, handler.title
    of_code = fingerprint(handler.origin), handler.reader.fingerprint, handler.given.fingerprint
    made.fingerprint = digest(code, *of_code, *besides)
    if handler.adapter is not None:
        made.patches = partial(patch_of, handler.reader.cls)
    return made


def made_view(
    handler: CalledHandler,
    view: Callable[..., Any],
    annotations: Mapping[str, Any],
    inspect_view: InspectView,
    code: str,
    *besides: str,
) -> ViewHandler:
    """The view of a handler's calls, which reads what is annotated besides its parent."""
    made = inspect_view(
        declared(view, handler.name, {"parent": handler.hint, **annotations, **handler.reads}, Level[Any])
    )
    made.is_made = True
    if handler.adapter is not None:
        besides = (*besides, value_fingerprint(handler.adapter.code))
    made.fingerprint = digest(code, handler.name, handler.reader.fingerprint, *besides)
    return made


def made_writer(
    handler: CalledHandler,
    act: Callable[..., Coroutine[Any, Any, list[Intent]]],
    view: ViewHandler,
    code: str,
    lender: Lender,
    *,
    writes: Writes | None,
) -> ReconcileHandler:
    """The reconcile function of such a view, which asks for the calls."""
    act.__annotations__["parent"] = handler.hint
    act.__name__ = f"{view.name}.call"
    made = ReconcileHandler(act, view, writes or {}, lender)
    made.fingerprint, made.needs_status = digest(code, view.name), False
    return made


def calls_of(handler: CalledHandler, request: type[Any]) -> Any:
    """Type of the index of a handler's calls."""
    asked: Any = request
    result: Any = handler.result
    return Index[str, Call[asked, result]]


def uid_of(parent: Any) -> str:
    """Uid of an object as a view takes it."""
    return str(parent["metadata"]["uid"] if isinstance(parent, Mapping) else parent.metadata.uid)


def require_limits(what: str, limits: CallLimits) -> None:
    """Refuse limits that say nothing of any function. Raises OperatorError; `what` they are of."""
    for name, noun, least in (("retries", "retries", 0), ("max_concurrency", "calls", 1)):
        number: object = getattr(limits, name)
        if number is not None and (type(number) is not int or number < least):
            raise OperatorError(f"{what}: {name}={number!r} is not a number of {noun}, {least} or more")
    for name in ("timeout", "backoff", "give_up_after"):
        time: object = getattr(limits, name)
        if time is not None or name == "timeout":
            require_time(what, name, time)
