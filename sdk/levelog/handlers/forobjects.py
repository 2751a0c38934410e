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
from levelog.handlers.indexers import IndexHandler
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
from levelog.intents import Intent, call
from levelog.levels import Level
from levelog.resources import ResourceBase, refuse_external
from levelog.selectors import Selector, taken_from
from levelog_base.errors import OperatorError
from levelog_base.mappings import plain
from levelog_base.wire.canonical import digest

if TYPE_CHECKING:
    from levelog.handlers.adapters import Adapter

Phase: TypeAlias = Literal["waits", "finalizing"]
"""An object waits for its operator's finalizer, or is being deleted and still has it."""
FINALIZING: Final = "finalizing"
"""By this name, views read the phases of objects."""


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
    opening: ClassVar[str] = "its object first"
    """How messages begin to say what it may take."""
    result: Any = None
    """Type of what is kept of a call; None: nothing is."""

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
        self.lender = lender
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
        self.given = injections(function, kind, others, lender, first=self.opening)
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
    def names(self) -> Sequence[str]:
        """Names that no other function of the operator may have."""
        return (self.name,)

    @property
    def holds_object(self) -> bool:
        """Whether its objects stay until it has handled their end."""
        return False

    @property
    def origin(self) -> Callable[..., Any]:
        """The function that its user wrote."""
        return self.function if self.adapter is None else self.adapter.function

    @property
    def hint(self) -> Any:
        """How what takes its objects is annotated."""
        return Mapping[str, Any] if self.reader.is_plain else self.reader.cls

    def tells(self, parameter: str) -> bool:
        """Tell whether each call says what a parameter asks for."""
        return parameter in self.told

    def require_hint(self, name: str) -> None:
        """Refuse a parameter that is not annotated as what a call says. Raises OperatorError."""
        if self.hints.get(name) is not self.told[name]:
            asked, wanted = shown(self.hints.get(name)), self.told[name].__name__
            raise OperatorError(f"{self.title}: parameter {name!r} is {asked}: annotate it with {wanted}")

    def taken(self, content: Any) -> Any:
        """An object as the function takes it. Raises msgspec.ValidationError for one that this code cannot read."""
        return content if self.reader.is_plain else msgspec.convert(content, self.reader.cls)

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


class DecidedHandler(CalledHandler):
    """A function whose calls are decided on: a view tells which of them is due, and an effect makes it."""

    code: ClassVar[str]
    """Stands for its module in fingerprints: raised when the same objects and calls lead to others."""
    request: ClassVar[type[Any]]
    """Type of what a call is for: it has the `object`, and `is_noted` tells that the function is not called for it."""
    suffix: ClassVar[str]
    """Ends the name of the effect, after that of the function."""
    is_lasting: ClassVar[bool] = False
    """Whether its calls are meant to go on, so that the object is as it should be while they do."""
    is_yielding: bool = False
    """Whether the function is a generator, of intents."""
    deleting: bool = False
    """Whether its calls are decided on for objects that are being deleted, too."""
    beside: Mapping[str, IndexHandler] = {}
    """Indices that its view reads, by the names that it has for them."""
    waits_for_finalizer: bool = False
    """Whether it is not called before the finalizer is on the object that a handler of its class holds."""

    @property
    def names(self) -> Sequence[str]:
        """That of its calls, too."""
        return self.name, self.calls_name

    @property
    def calls_name(self) -> str:
        """Name of the effect, and of the index of its calls."""
        return f"{self.name}{self.suffix}"

    @property
    def calls_type(self) -> Any:
        """Type of the index of its calls."""
        asked: Any = self.request
        result: Any = self.result
        return Index[str, Call[asked, result]]

    @property
    def reads(self) -> Mapping[str, Any]:
        """What its view reads besides the object, with their types: what an adapter looks up has to be filled first."""
        index: Any = Index
        looked_up = () if self.adapter is None else self.adapter.indices
        of_beside = {name: index[each.types] for name, each in self.beside.items()}
        return {self.calls_name: self.calls_type, **of_beside, **dict.fromkeys(looked_up, Index[Any, Any])}

    @property
    def writes(self) -> Writes | None:
        """What its calls write; None: nothing, or it yields that."""
        return self.options.writes

    @property
    def fingerprint_parts(self) -> Sequence[str]:
        """What counts in the fingerprint of its view beside its objects."""
        return ()

    def level(self, parent: Any, read: Mapping[str, Any]) -> Level[Any]:
        """Which call is due for an object, against those that were made; `read` is what the view reads."""
        raise NotImplementedError

    def wanted_calls(self, parent: Any, level: Level[Any], *, is_end: bool) -> Sequence[tuple[Any, str]]:
        """The calls that an object needs while its level drifts: requests and names; `is_end`: it is gone."""
        raise NotImplementedError

    def kept(self, asked: Any, result: Any) -> Any:  # noqa: ARG002 - for those that keep what is yielded
        """What is recorded of a request, and of what the function returned, or has yielded."""
        return result if self.result is not None else nothing_of(result)

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

    def known(self, content: dict[str, Any]) -> dict[str, Any]:
        """What was handed over, as this code reads it: a field that a class has now has its default."""
        try:
            return self.shown(self.taken(content))
        except msgspec.ValidationError:  # by code whose class read something else
            return content

    def arguments(self, request: Any, given: Mapping[Given, Any]) -> dict[str, Any]:
        """The arguments of one call. Raises as `taken` does."""
        return {self.parameter: self.taken(request.object), **self.given.arguments(given)}

    def effect(self) -> EffectHandler:
        """The effect that calls the function. What it raises is tried again, and given up for what is newer."""

        async def kept_later(asked: Any, result: Any) -> Any:
            return self.kept(asked, [each async for each in result] if self.is_yielding else await result)

        def call(asked: Any, idempotency_key: str, retry: int, started: datetime) -> Any:
            if asked.is_noted:
                return None
            result: Any
            if self.adapter is not None:
                if asked.carried is not None and asked.carried.is_over:
                    raise GiveUp(asked.carried.error)
                result = self.adapter.call(asked, retry, started)
            else:
                given = {Given.KEY: idempotency_key, Given.RETRY: retry, Given.STARTED: started}
                result = self.function(**self.arguments(asked, given))
            if isinstance(result, Coroutine | AsyncIterator):
                return kept_later(asked, result)
            return self.kept(asked, list(result) if self.is_yielding else result)

        call.__annotations__ |= {"asked": self.request, "return": self.result}
        made = self.made_effect(call)
        made.is_async = self.is_async
        made.most_bytes, made.is_superseded = MOST_EDGE_BYTES, True
        made.snapshots = {} if self.adapter is None else dict.fromkeys(self.adapter.indices, Any)
        made.first_argument = lambda asked: UNSET if asked.is_noted else self.taken(asked.object)
        return made

    def made_effect(self, function: Callable[..., Any], *besides: str) -> EffectHandler:
        """The effect of a function that makes the calls; `besides` count in its fingerprint."""
        function.__name__ = self.calls_name
        made = EffectHandler(function, self.lender, self.limits)
        made.origin, made.title = self.origin, self.title
        of_code = fingerprint(self.origin), self.reader.fingerprint, self.given.fingerprint
        made.fingerprint = digest(self.code, *of_code, *besides)
        if self.adapter is not None:
            made.patches = partial(patch_of, self.reader.cls)
        return made

    def view(self, known: Mapping[str, IndexHandler]) -> ViewHandler:
        """The view of its calls, which may read the indices that are `known`, and what is beside."""

        def view(parent: Any, **read: Any) -> Level[Any]:
            return self.level(parent, read)

        options = self.options
        made = ViewHandler(
            declared(view, self.name, {"parent": self.hint, **self.reads}, Level[Any]),
            {**known, **self.beside},
            options.selector,
            self.lender,
            deleting=self.deleting,
            of=options.of,
        )
        made.is_made = True
        of_adapter = () if self.adapter is None else (value_fingerprint(self.adapter.code),)
        made.fingerprint = digest(self.code, self.name, self.reader.fingerprint, *self.fingerprint_parts, *of_adapter)
        return made

    def writer(self, view: ViewHandler, effect: EffectHandler) -> ReconcileHandler:
        """The reconcile function of such a view, which asks for the calls."""

        async def act(parent: Any, level: Level[Any]) -> list[Intent]:  # async, so that it needs no thread
            asked = self.wanted_calls(parent, level, is_end=view.is_of_deleted)
            return [call(effect.function, request, name=name) for request, name in asked]

        act.__annotations__["parent"] = self.hint
        act.__name__ = f"{view.name}.call"
        made = ReconcileHandler(act, view, self.writes or {}, self.lender)
        made.fingerprint, made.needs_status, made.is_lasting = digest(self.code, view.name), False, self.is_lasting
        return made


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
