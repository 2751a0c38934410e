"""External effects: functions that the actuator calls for a level, at least once, always with the same key."""

import inspect
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from types import new_class
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from levelog.calls.limits import CallLimits
from levelog.handlers.fingerprints import fingerprint, type_fingerprint
from levelog.handlers.indexers import IndexHandler
from levelog.handlers.injection import Lender, injections, shown
from levelog.handlers.readers import ObjectReader
from levelog.handlers.signatures import parameters, type_hints, yields
from levelog.intents import Intent
from levelog.resources import Resource, ResourceBase, ResourceType
from levelog.selectors import Selector
from levelog_base.errors import OperatorError
from levelog_base.wire.canonical import canonical, digest

if TYPE_CHECKING:
    from levelog.handlers.runs import DaemonHandler
    from levelog.handlers.yielding import Yields

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")

GROUP: Final = "effects"
"""Stands for the API group in the targets of calls; no resource of a cluster has a group of this name."""
MOST_BYTES: Final = 64 * 1024
"""Most bytes of a request, and of a result, as JSON: both go into a record of the log."""
MOST_EDGE_BYTES: Final = 2 * 1024 * 1024
"""Most bytes of an object that an edge handler is called for, and of how it differs: objects reach 1.5 MiB."""

MOST_DELAY: Final = timedelta(days=366)

looked_up: Final[ContextVar[Mapping[str, Mapping[Any, Collection[Any]]]]] = ContextVar("levelog_looked_up")
"""What the call that runs now finds in the indices of `EffectHandler.snapshots`, by their names."""


class Retry(Exception):
    """Raised by a function that did nothing: call it again, after `delay`, its `backoff`, or by the schedule.

    The longest delay is `MOST_DELAY`, 366 days. It counts as one of a handler's `retries`.

    Raise any other exception if something may have been done.
    """

    is_limited: ClassVar[bool] = True
    """Whether `retries` can end it; False: who raises it sees to that. It uses up an attempt in any case."""

    def __init__(self, message: str = "", *, delay: timedelta | None = None) -> None:
        super().__init__(message)
        self.delay = delay

    @property
    def asked(self) -> timedelta | None:
        """The delay, limited to `MOST_DELAY`; None if there is none, or if it is no timedelta."""
        delay: object = self.delay
        return min(max(delay, timedelta(0)), MOST_DELAY) if isinstance(delay, timedelta) else None

    def __str__(self) -> str:
        words, delay = super().__str__(), self.delay
        if delay is None or isinstance(delay, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
            return words
        return f"{words} (its delay is of type {type(delay).__name__}, not a timedelta)"


class GiveUp(Exception):
    """Raised by an effect that can never succeed: it is not called again, and the level fails with the message."""


class Call(Struct, Generic[RequestT, ResultT], frozen=True, kw_only=True):
    """A finished call of an effect: an entry of the effect's index, under the uid of the parent."""

    request: RequestT
    result: ResultT
    name: str = ""
    """The name that was passed to `call`; the index keeps the last call of each name."""
    idempotency_key: str
    called_at: datetime
    patched: int = 0
    """resourceVersion of the parent after the call patched it; 0: it patched nothing."""


class CallPatch(Struct, frozen=True, kw_only=True):
    """What a call has written of its parent: a merge patch, then Events about it. The call ends once that is done."""

    of: type[ResourceBase]
    patch: Mapping[str, Any]
    seen: Mapping[str, Any] | None
    """The parent as the call was given it: fields of the status that others have written since are left alone. None:
    the call has followed its changes."""
    events: Sequence[Intent] = ()


class EffectIndex(IndexHandler):
    """The calls of an effect that took place, by the uid of the parent; receipts fill it, not objects."""

    has_objects: ClassVar[bool] = False

    def __init__(self, name: str, request: Any, result: Any) -> None:
        cls: type[Resource] = new_class(name, (Resource,))
        cls.resource_type = ResourceType(group=GROUP, version="v1", plural=name, kind=name, scope="Namespaced")
        reader = ObjectReader(cls, Selector())
        calls: Any = Call[request, result]
        super().__init__(
            lambda _: (),
            reader,
            Iterator[tuple[str, calls]],
            name=name,
            code=digest(type_fingerprint(request), type_fingerprint(result)),
            errors="ignore",
        )


class EffectHandler:
    """A registered effect: its parameters, its result, and its limits."""

    def __init__(self, function: Callable[..., Any], lender: Lender, limits: CallLimits | None = None) -> None:
        """Check the signature of an effect. Raises OperatorError naming the function and the parameter.

        `limits`: None are those that the operator has for all.
        """
        self.name = function.__name__
        self.function = function
        self.title = f"effect {self.name}"
        """As errors name it."""
        if yields(function):
            raise OperatorError(f"{self.title}: yields; an effect runs to its end and returns its result")
        hints = type_hints(function)
        self.request_parameter, *rest = parameters(function, "effect", "request")
        if self.request_parameter not in hints:
            raise OperatorError(
                f"{self.title}: parameter {self.request_parameter!r} is not annotated; it is the request, a Struct for "
                "example"
            )
        self.request = hints[self.request_parameter]
        """Type of the request."""
        self.returns = hints.get("return", Any)
        """Type of the result."""
        require_json(f"{self.title}: parameter {self.request_parameter!r} is", self.request)
        require_json(f"{self.title}: returns", self.returns)
        self.given = injections(function, "effect", rest, lender, first="its request first")
        self.limits = limits or lender.limits
        self.is_async = inspect.iscoroutinefunction(function)
        """Whether it runs in the event loop; else it runs in a thread."""
        self.first_argument: Callable[[Any], Any] = lambda request: request
        """What the user's function gets of a request; UNSET where it is not called."""
        self.origin = function
        """The function that its user wrote."""
        self.most_bytes = MOST_BYTES
        self.is_superseded = False
        """Whether a call that failed is given up for a newer one, though it may have taken effect in part."""
        self.notes_failure: Callable[[Any], bool] = lambda _: False
        """Whether a request that was given up counts as a call that took place."""
        self.in_line: Collection[str] = ()
        """Names of calls that are in one order with those that have no name."""
        self.yielding: Yields | None = None
        """What its result has to be read by, where it is intents."""
        self.snapshots: Mapping[str, Any] = {}
        """Indices that a call finds whole in `looked_up`, with the types of their values."""
        self.patches: Callable[[Any, Any], CallPatch | None] | None = None
        """What a call writes, by its request and its result as it is recorded; None: nothing."""
        self.daemon: DaemonHandler | None = None
        """Whose run a call is, which lasts; None: of no daemon."""
        self.index = EffectIndex(self.name, self.request, self.returns)
        self.fingerprint = digest(fingerprint(function), self.index.fingerprint, self.given.fingerprint)

    def encoded(self, request: Any) -> bytes:
        """A request as it is stored. Raises OperatorError if the effect could not read it again."""
        try:
            body = canonical(request)
            msgspec.json.decode(body, type=self.request)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise OperatorError(
                f"call of {self.name}: it takes {shown(self.request)}, not this {type(request).__name__}: {error}"
            ) from error
        if len(body) > self.most_bytes:
            raise OperatorError(f"call of {self.name}: a request of {len(body)} bytes; {self.most_bytes} are allowed")
        return body

    def kept(self, result: Any) -> Any:
        """A result as it is recorded, decoded JSON. Raises GiveUp if views could not read it as the effect says."""
        try:
            body = canonical(result)
            msgspec.json.decode(body, type=self.returns)
        except Exception as error:
            raise GiveUp(
                f"it took place, but returned {type(result).__name__}, not {shown(self.returns)}: {error}"
            ) from error
        if len(body) > MOST_BYTES:
            raise GiveUp(f"it took place, but returned {len(body)} bytes; {MOST_BYTES} are kept")
        return msgspec.json.decode(body)


def nothing_of(result: object) -> None:
    """Raises GiveUp for a result that holds or would yield intents, since nothing would write them."""
    values: Collection[object] = result if isinstance(result, list | tuple | set | frozenset) else (result,)  # pyright: ignore[reportUnknownVariableType]
    if any(isinstance(each, Intent | Iterator | AsyncIterator) for each in values):
        kind = type(result).__name__
        raise GiveUp(f"it took place, but returned {kind}: it has to yield intents, by itself, not in a wrapper")


def require_json(what: str, hint: Any) -> None:
    """Refuse a type that has no JSON form. Raises OperatorError; `what` is of the type."""
    try:
        msgspec.json.schema(hint)
    except (TypeError, ValueError, NameError) as error:
        raise OperatorError(
            f"{what} {shown(hint)}, which has no JSON form: use a Struct of strings, numbers, times, lists and mappings"
        ) from error
