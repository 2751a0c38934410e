"""Live indices, for hooks, daemons and effects: read from the tables, again when a fold of any process changes a key.

Nothing here is State: what views look up is in memory, and never waits.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, Final, Self

import msgspec
from msgspec import Struct

from levelog.absence import level_of
from levelog.indices import Contact, LiveIndex
from levelog_base.errors import LevelogError, Unavailable
from levelog_log.notifications import Notifier, Topic
from levelog_processors.keys import key_from, lookup_key
from levelog_processors.program import Program
from levelog_processors.waiting import RESYNC
from levelog_store.connect.database import Database
from levelog_store.decide.inputreads import read_buckets, read_versions, read_whole_index
from levelog_store.look.contact import read_contact
from levelog_store.rows import IndexKey, Scope, WholeIndex

log = logging.getLogger(__name__)

RETRY_PAUSE: Final = timedelta(seconds=1)


class LiveIndices(Struct, eq=False):
    """Makes the LiveIndex of each parameter of a hook; one per process, used as `async with LiveIndices(...)`.

    `live.index(f"{operator}/{name}", value_type)` is the argument for a parameter `name: LiveIndex[K, value_type]`. The
    processor of the process gets `live.tell` as `on_keys`, so that its own folds wake waiting tasks at once. Folds of
    other processors arrive by notification, or by a resync if a notification was lost.
    """

    database: Database
    scope: Scope
    program: Program
    notifier: Notifier
    resync: timedelta = RESYNC
    waiting: "set[_Changes]" = set()
    """Iterations whose next step somebody waits for."""
    wholes: dict[tuple[str, Any], tuple[Mapping[str, int], Mapping[Any, Collection[Any]]]] = {}
    """Indices that were read whole, with the versions of their parts, by name and type of their values."""
    waits: Callable[[], AbstractContextManager[object]] = nullcontext
    """Stands around each wait for a change."""
    looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.looking = asyncio.create_task(self._look(), name="live indices")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.looking is not None:
            self.looking.cancel()
            await asyncio.gather(self.looking, return_exceptions=True)

    def index(self, name: str, value_type: Any) -> LiveIndex[Any, Any]:
        """The index `operator/index`, its values decoded to the type."""
        resource = str(self.program.indices[name].handler.resource.group_resource)
        return _Live(self, name, resource, msgspec.json.Decoder(value_type))

    def tell(self, keys: Collection[IndexKey]) -> None:
        """Take note of keys that a committed fold has changed."""
        for changes in self.waiting:
            if changes.place in keys:
                changes.moved.set()

    async def values(self, place: IndexKey) -> tuple[int, tuple[bytes, ...]]:
        """Version of a key and the values under it. Raises Unavailable."""
        async with self.database.reading() as connection:
            bucket = (await read_buckets(connection, self.scope, [place]))[place]
        return max(bucket.version, 0), bucket.values

    async def whole(self, name: str, known: Mapping[str, int] | None) -> WholeIndex | None:
        """Every bucket of an index; None: it is as in the `known` versions of its parts. Raises Unavailable."""
        async with self.database.reading() as connection:
            if known is not None:
                versions = await read_versions(connection, self.scope, [(name, key) for key in known])
                if all(versions.get((name, key), -1) == known[key] for key in known):
                    return None
            return await read_whole_index(connection, self.scope, name)

    async def contact(self, resource: str) -> Contact:
        """How the watch of a resource stands. Raises Unavailable."""
        async with self.database.reading() as connection:
            return await read_contact(connection, self.scope, resource)

    async def _look(self) -> None:
        listener = self.notifier.listen(Topic.WAKE)
        while True:
            await listener.wait(self.resync)
            try:
                await self._compare()
            except LevelogError as error:
                log.log(level_of(error), "live indices wake at the next resync: %s", error)

    async def _compare(self) -> None:
        """Wake those whose key is at another version than they have seen."""
        waiting = list(self.waiting)
        if not waiting:
            return
        async with self.database.reading() as connection:
            versions = await read_versions(connection, self.scope, sorted({each.place for each in waiting}))
        for each in waiting:
            if versions.get(each.place, 0) != each.version:
                each.moved.set()


class _Live(LiveIndex[Any, Any]):
    def __init__(self, live: LiveIndices, name: str, resource: str, decoder: "msgspec.json.Decoder[Any]") -> None:
        self._live = live
        self._name = name
        self._resource = resource
        self._decoder = decoder

    async def get(self, key: Any) -> Collection[Any]:
        _, values = await self._live.values(self._place(key))
        return _decoded(self._decoder, values)

    async def everything(self) -> Mapping[Any, Collection[Any]]:
        place = self._name, self._decoder.type
        known, decoded = self._live.wholes.get(place, (None, {}))
        found = await self._live.whole(self._name, known)
        if found is not None:
            decoded = {key_from(text): _decoded(self._decoder, values) for text, values in found.buckets.items()}
            self._live.wholes[place] = found.versions, decoded
        return decoded

    def changes(self, key: Any) -> "_Changes":
        return _Changes(self._live, self._place(key), self._decoder)

    async def until(self, key: Any, condition: Callable[[Collection[Any]], bool]) -> Collection[Any]:
        async for values in self.changes(key):
            if condition(values):
                return values
        raise AssertionError("an iteration over changes has no end")

    async def contact(self) -> Contact:
        return await self._live.contact(self._resource)

    def _place(self, key: Any) -> IndexKey:
        key_type, _ = self._live.program.indices[self._name].handler.types
        return self._name, lookup_key(self._name, key_type, key)


class _Changes:
    """One iteration; known to LiveIndices only while somebody waits for its next step, so that none is left over."""

    def __init__(self, live: LiveIndices, place: IndexKey, decoder: "msgspec.json.Decoder[Any]") -> None:
        self.place: Final = place
        self.moved: Final = asyncio.Event()
        self.version = 0
        self.is_idle = False
        """Has taken all there is, and waits for a change."""
        self._live = live
        self._decoder = decoder
        self._last: tuple[bytes, ...] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Collection[Any]:
        self._live.waiting.add(self)
        try:
            while True:
                self.moved.clear()  # before the read: what changes from here on is looked at again
                values = await self._read()
                if values != self._last:
                    self._last = values
                    return _decoded(self._decoder, values)
                self.is_idle = not self.moved.is_set()
                with self._live.waits():
                    await self.moved.wait()
                self.is_idle = False
        finally:
            self._live.waiting.discard(self)

    async def _read(self) -> tuple[bytes, ...]:
        while True:
            try:
                self.version, values = await self._live.values(self.place)
            except Unavailable as error:
                log.log(level_of(error), "index %s is read again in %s: %s", self.place[0], RETRY_PAUSE, error)
                await asyncio.sleep(RETRY_PAUSE.total_seconds())
            else:
                return values


def _decoded(decoder: "msgspec.json.Decoder[Any]", values: Iterable[bytes]) -> tuple[Any, ...]:
    return tuple(decoder.decode(value) for value in values)
