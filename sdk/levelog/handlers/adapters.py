"""Adapters: how a layer above levelog has its users' functions called, and the triggers that they are called by."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from levelog.daemons import Daemon
from levelog.edges import Edge, Reason, essence, flat
from levelog.effects import Call
from levelog.handlers.edgehandlers import EdgeHandler
from levelog.handlers.fingerprints import fingerprint, value_fingerprint
from levelog.handlers.forobjects import CallOptions, RecordHandler
from levelog.handlers.indexers import IndexHandler
from levelog.handlers.injection import Lender
from levelog.handlers.outcomes import WRITES, CallResult
from levelog.handlers.readers import ObjectReader
from levelog.handlers.runs import GRACE, DaemonHandler
from levelog.handlers.timers import LEAST, Tick, TimerHandler
from levelog.indices import LiveIndex
from levelog.levels import Level
from levelog.resources import ResourceBase
from levelog.selectors import Selector
from levelog_base.wire.canonical import digest

Living: TypeAlias = Daemon[Mapping[str, Any], CallResult]
"""What runs of an adapter get: the plain object as it changes, and what the run before has left as its state."""


class Adapter:
    """How one function of a layer's users is called, for the objects of one class, which it gets as plain mappings.

    Derive from it, and write the method for your trigger: `call`, `run`, `hear` or `entries`. Each calls `function` as
    the layer's users expect. If `function` is async, the method may return a coroutine; else it runs in a thread.
    """

    def __init__(self, function: Callable[..., Any], of: type[ResourceBase]) -> None:
        self.function = function
        self.of = of
        self.is_async = inspect.iscoroutinefunction(function)
        self.indices: Sequence[str] = ()
        """Indices of the operator that calls look up, in `levelog.effects.looked_up`; they are filled before."""
        self.code: object = ()
        """What else counts as code, as plain data: with another value, the function is another version of itself."""
        self.beside: Mapping[str, str] = {}
        """Names of the indices that `look` reads, by the names that it has for them."""

    @property
    def takes(self) -> Callable[[Mapping[str, Any]], bool] | None:
        """The filter of objects; None: it takes all."""
        return None

    def call(self, request: Any, retry: int, started: datetime) -> CallResult | Awaitable[CallResult | None] | None:
        """Call the function for an Edge or a Tick; what it raises is retried as for `op.on.create`.

        `retry` counts attempts that raised, since the call was decided, at `started`. A CallResult with `left` is
        written and recorded too: the next call has that as `request.carried`.
        """
        raise NotImplementedError

    def run(
        self, daemon: Living, retry: int, started: datetime, indices: Mapping[str, LiveIndex[Any, Any]]
    ) -> Awaitable[None]:
        """Run the function until it returns or has to end. The state that it saved last is the outcome of the run."""
        raise NotImplementedError

    def hear(self, found: Mapping[str, Any], origin: str, *, is_deleted: bool) -> Any:
        """Call the function for a record of an object; `origin` is `list` or `watch`. Nothing is kept of the result."""
        raise NotImplementedError

    def entries(self, found: Mapping[str, Any]) -> Iterable[tuple[Any, Any]]:
        """Keys and values for an object: JSON scalars, and what has a JSON form."""
        raise NotImplementedError

    def state(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What makes an edge of an object when it differs, by JSON pointer."""
        return flat(essence({key: found[key] for key in found if key != "status"}))

    def fits(self, edge: Edge) -> bool:  # noqa: ARG002 - for those that write it
        """Tell whether the function is called for an edge, or it is only noted as handled."""
        return True

    def look(
        self,
        found: Mapping[str, Any],  # noqa: ARG002 - as above
        last: Call[Tick, Any] | None,  # noqa: ARG002
        noted: Call[Tick, Any] | None,  # noqa: ARG002
        now: datetime,  # noqa: ARG002
        read: Mapping[str, Any],  # noqa: ARG002
    ) -> Level[Any] | None:
        """For which time the function is called, against that of its `last` call, both sides; None: as Times say.

        A mapping on the desired side has it `noted` that the object is known. It is a part of a view: a pure function.
        """
        return None


class Edges(Struct, frozen=True, kw_only=True):
    """Call for edges, as `op.on.create` and the like do; an adapter's `state` says what differs."""

    reasons: frozenset[Reason]
    finalizer: bool = False

    def handler(self, name: str, adapter: Adapter, options: CallOptions, lender: Lender) -> EdgeHandler:
        """The handler of such calls."""
        options = replace(options, finalizer=self.finalizer)
        return EdgeHandler(_standing(name), self.reasons, options, lender, adapter)


class Times(Struct, frozen=True, kw_only=True):
    """Call now and then, as `op.timer` does, or when the adapter's `look` says so."""

    least: ClassVar[timedelta] = LEAST
    """Below this, `every` and `idle` are refused."""
    every: timedelta = LEAST
    initial_delay: timedelta = timedelta(0)
    idle: timedelta | None = None
    sharp: bool = False
    deleting: bool = False
    """Objects that are being deleted count, too."""

    def handler(self, name: str, adapter: Adapter, options: CallOptions, lender: Lender) -> TimerHandler:
        """The handler of such calls."""
        made = TimerHandler(
            _standing(name),
            self.every,
            self.initial_delay,
            options,
            lender,
            idle=self.idle,
            sharp=self.sharp,
            adapter=adapter,
        )
        made.deleting = self.deleting
        return made


class Lifetimes(Struct, frozen=True, kw_only=True):
    """Run for as long as the object is there, as `op.daemon` does; the object stays until the run has ended."""

    grace: timedelta = GRACE

    def handler(self, name: str, adapter: Adapter, options: CallOptions, lender: Lender) -> DaemonHandler:
        """The handler of such runs."""

        async def standing(found: Mapping[str, Any], daemon: Living, retry: int, started: datetime) -> None:
            raise NotImplementedError

        async def run(
            found: Any,  # noqa: ARG001 - it changes; the daemon has it
            daemon: Living,
            retry: int,
            started: datetime,
            **indices: LiveIndex[Any, Any],
        ) -> None:
            await adapter.run(daemon, retry, started, indices)

        standing.__name__ = name
        made = DaemonHandler(standing, self.grace, options, lender, (), {}, adapter)
        made.function, made.deleting = run, True
        made.indices = dict.fromkeys(adapter.indices, Any)
        return made


class Records(Struct, frozen=True, kw_only=True):
    """Call for each record of an object in the log, as `op.on.event` does."""

    def handler(self, name: str, adapter: Adapter, options: CallOptions, lender: Lender) -> RecordHandler:
        """The handler of such calls."""

        def hear(found: Mapping[str, Any], origin: str, is_deleted: bool) -> Any:
            return adapter.hear(found, origin, is_deleted=is_deleted)

        hear.__name__ = name
        return RecordHandler(hear, options, lender, adapter)


class Entries(Struct, frozen=True, kw_only=True):
    """Fill an index of the name, which begins with `@` if it is the layer's own; objects that fail keep their entries.

    It has no limits.
    """

    def handler(self, name: str, adapter: Adapter, options: CallOptions, lender: Lender) -> IndexHandler:  # noqa: ARG002 - as the others
        """The index."""

        def entries(found: Mapping[str, Any]) -> Iterable[tuple[Any, Any]]:
            return adapter.entries(found)

        made: Any = entries
        made.__signature__, made.__wrapped__ = inspect.signature(entries), adapter.function
        reader = ObjectReader(adapter.of, options.selector, is_plain=True)
        code = digest(fingerprint(adapter.function), value_fingerprint(adapter.code))
        return IndexHandler(made, reader, Iterator[tuple[Any, Any]], name=name, code=code, errors="ignore")


Trigger: TypeAlias = Edges | Times | Lifetimes | Records | Entries


def options_for(adapter: Adapter, limits: Mapping[str, Any]) -> CallOptions:
    """The options of an adapter's handler."""
    takes = adapter.takes
    selector = Selector() if takes is None else Selector(when=takes)
    return CallOptions(of=adapter.of, selector=selector, writes={adapter.of: WRITES}, **limits)


def _standing(name: str) -> Callable[..., Any]:
    """Stands for a function that an adapter calls: what takes the object."""

    def standing(found: Mapping[str, Any]) -> None:
        raise NotImplementedError

    standing.__name__ = name
    return standing
