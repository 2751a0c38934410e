"""External systems of a simulation: records given by the test, and stubs of effects."""

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any

from msgspec import UNSET

from levelog.effects import EffectHandler, GiveUp
from levelog.handlers.forobjects import CalledHandler
from levelog.resources import External
from levelog.sources import SourceHandler
from levelog_base.errors import LevelogError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import ObjectKey, Version
from levelog_base.wire.records import BookmarkNoted, ContactLost, ObjectDeleted, ObjectSeen, Record
from levelog_ingest.sources.encoding import Encoder, uid_of
from levelog_ingest.sources.known import KnownRecords
from levelog_ingest.sources.runner import SourceCalls, SourceFault


class Externals:
    """The contents of the external systems of some sources, as the simulation's log has them."""

    def __init__(self, sources: Mapping[str, SourceHandler]) -> None:
        self._sources = sources
        self._known = {name: KnownRecords() for name in sources}
        self._bodies: dict[ObjectKey, bytes] = {}
        self.lost: set[str] = set()
        """Resources whose sources fail."""

    def observe(self, cls: type[External], records: Iterable[object], now: datetime) -> list[Record]:
        """Records of what differs from a whole set. Raises LevelogError for what ingest could not record."""
        name, source = self._source(cls)
        known = self._known[name]
        encoded = Encoder(source, Redactor(is_off=True)).whole(records)
        if encoded.complaint:
            raise LevelogError(encoded.complaint)
        version = known.next_version(now)
        changes = known.compare(encoded.bodies, ())
        made: list[Record] = []
        for key in changes.changed:
            body = self._bodies[key] = encoded.bodies[key]
            known.put(key, body, version)
            made.append(ObjectSeen(key=key, uid=uid_of(key), version=version, origin="watch", time=now, body=body))
        for key in changes.gone:
            body = self._bodies.pop(key)
            known.drop(key)
            made.append(ObjectDeleted(key=key, uid=uid_of(key), version=version, origin="watch", time=now, body=body))
        self.lost.discard(name)
        return [*made, BookmarkNoted(resource=source.resource.group_resource, version=version, time=now)]

    def lose(self, cls: type[External], error: str, now: datetime) -> list[Record]:
        """The record of a source that fails."""
        name, source = self._source(cls)
        self.lost.add(name)
        return [ContactLost(resource=source.resource.group_resource, error=error, time=now)]

    async def poll(self, cls: type[External], now: datetime) -> list[Record]:
        """Call the source once, as ingest does; what it raises makes it fail, and nothing else."""
        name, source = self._source(cls)
        if source.every is None:
            raise LevelogError(f"{source} waits for changes by itself: give the records of {name} with observe()")
        try:
            async with aclosing(SourceCalls(source)) as calls:
                records = await calls.poll()
        except SourceFault as fault:
            return self.lose(cls, f"{source}: {fault}", now)
        return self.observe(cls, records, now)

    def bookmark(self, name: str, now: datetime) -> BookmarkNoted:
        """The record that a source is heard of."""
        resource = self._sources[name].resource.group_resource
        return BookmarkNoted(resource=resource, version=Version(self._known[name].version), time=now)

    def _source(self, cls: type[External]) -> tuple[str, SourceHandler]:
        name = str(cls.resource_type.group_resource)
        if name not in self._sources or self._sources[name].cls is not cls:
            given = ", ".join(source.cls.__name__ for source in self._sources.values()) or "none"
            raise LevelogError(f"no source gives the records of {cls.__name__}; those with a source: {given}")
        return name, self._sources[name]


class StandIns:
    """Effects by `operator/effect`, with other functions in their place; `count` is told the name of each call."""

    def __init__(
        self,
        effects: Mapping[str, EffectHandler],
        count: Callable[[str], None],
        unrecorded: Mapping[str, CalledHandler],
    ) -> None:
        self._effects = effects
        self._unrecorded = unrecorded
        self._unrecorded_functions: dict[str, Callable[..., Any]] = {}
        self._count = count
        self._given: set[str] = set()
        self.handlers = {name: self._handler(name, _nothing) for name in effects}
        """The functions to call."""

    def put(self, effect: Callable[..., Any], function: Callable[[Any], Any]) -> None:
        """Have the function called with the request. Raises KeyError for what is no effect of the operators."""
        for name in self._named(effect):
            self.handlers[name] = self._handler(name, function)

    def call_through(self, effects: Iterable[Callable[..., Any]]) -> None:
        """Have effects called as they would be live. Raises KeyError for what is no effect of the operators."""
        for effect in effects:
            found = {name: each.function for name, each in self._unrecorded.items() if each.origin == effect}
            self._unrecorded_functions |= found
            if found and not any(each.origin == effect for each in self._effects.values()):
                continue
            for name in self._named(effect):
                self.handlers[name] = self._real(name)

    def unrecorded_function(self, handler: CalledHandler) -> Callable[..., Any]:
        """A function that does nothing, in place of a handler whose calls leave no records and are not let through."""
        function = self._unrecorded_functions.get(handler.source)

        def call(**arguments: Any) -> Any:
            self._count(handler.source)
            return function(**arguments) if function is not None else None

        async def call_async(**arguments: Any) -> Any:
            result = call(**arguments)
            return await result if function is not None else None

        return call_async if handler.is_async else call

    def _named(self, function: Callable[..., Any]) -> list[str]:
        """Names of the effects that call a function; of a layer there may be several."""
        if found := [name for name, handler in self._effects.items() if handler.origin == function]:
            self._given.update(found)
            return found
        name = getattr(function, "__name__", repr(function))
        mend = ": give the function, not its name" if isinstance(function, str) else ""
        raise KeyError(f"{name} is no effect or handler of the operators of this simulation{mend}")

    def require(self, name: str) -> None:
        """Raises LevelogError for an effect whose result nobody gave, and that does not return None."""
        effect = self._effects[name]
        if name in self._given:
            return
        try:
            effect.kept(None)
        except GiveUp:
            raise LevelogError(
                f"a simulation calls no effects, and {effect.name} does not return None: say what it returns, "
                f"simulation.stub({effect.name}, lambda request: …)"
            ) from None

    def _real(self, name: str) -> EffectHandler:
        effect = self._effects[name]
        if effect.daemon is not None:
            return effect

        def call(**arguments: Any) -> Any:
            self._count(name)
            return effect.function(**arguments)

        other = copy.copy(effect)
        other.function = call
        return other

    def _handler(self, name: str, function: Callable[[Any], Any]) -> EffectHandler:
        effect = self._effects[name]

        def call(**arguments: Any) -> Any:
            self._count(name)
            asked = arguments[effect.request_parameter]
            request = effect.first_argument(asked)
            if request is UNSET:
                return None
            result = function(request)
            if effect.yielding is None:
                return result
            return effect.yielding.kept(list(result or ()), is_end=asked.reason == "delete")

        other = copy.copy(effect)
        other.daemon = None
        other.function = call
        other.is_async = inspect.iscoroutinefunction(function)
        return other


def _nothing(_: object) -> None:
    pass
