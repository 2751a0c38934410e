"""Running views: each in a greenlet that pauses where it reads an index, so that many reads become one query.

A view is an ordinary function and reads an index like a mapping. What it reads is recorded, also what is absent, and
also what was read before it raised.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec
from greenlet import getcurrent, greenlet
from msgspec import Struct

from levelog import observations
from levelog.canonical import canonical, digest
from levelog.children import REDACTOR, ChildrenView
from levelog.faults import HandlerFault, fault_reason, tell_fault
from levelog.indices import Index
from levelog.injection import Given, about
from levelog.levels import Level
from levelog.recorded import Notes, RecordedMapping, plain
from levelog.redaction import Redactor
from levelog_processors.decide.lookups import ObjectLookups, Sight
from levelog_processors.fence.calls import Fence, filtered
from levelog_processors.fold.entries import WHOLE_INDEX, canonical_key
from levelog_processors.fold.lists import CONTACT, contact_key
from levelog_processors.program import BoundView
from levelog_store.rows import ERRORS, Bucket, IndexKey, WholeIndex

MOST_HELD_BY_KEY: Final = 4_000
MOST_HELD: Final = 16_000
"""Bytes that a decision keeps of what a key held, and of all its keys."""


class Fetch(Protocol):
    """Reads buckets and whole indices from the tables."""

    async def buckets(self, keys: Sequence[IndexKey]) -> Mapping[IndexKey, Bucket]:
        """Buckets of the keys, all as of one moment."""
        ...

    async def whole(self, index: str) -> WholeIndex:
        """Return every bucket of an index."""
        ...


class _Need(Struct, frozen=True):
    """What a paused view waits for; key None: the whole index."""

    index: str
    key: str | None


class Reads:
    """What one evaluation has read."""

    def __init__(self, known: Mapping[IndexKey, Bucket]) -> None:
        self._known = dict(known)
        self._wholes: dict[str, WholeIndex] = {}
        self.versions: dict[IndexKey, int] = {}
        self._contents: dict[IndexKey, tuple[bytes, ...]] = {}
        self.fence: Fence | None = None
        """Of the function that reads, which stands while levelog fetches."""

    def bucket(self, index: str, key: str) -> tuple[bytes, ...]:
        """Values under a key; pauses the view if they have to be fetched."""
        place = (index, key)
        if place in self._contents:
            return self._contents[place]
        if whole := self._wholes.get(index):  # the whole index is read already, and covers the key
            return whole.buckets.get(key, ())
        bucket = self._known.get(place)
        if bucket is None:
            bucket = self._pause(_Need(index, key))
        self.versions[place] = bucket.version
        self._contents[place] = _contents(index, key, bucket)
        return bucket.values

    @property
    def known(self) -> Mapping[IndexKey, tuple[bytes, ...]]:
        """What it will find without a query, as an evaluation sees it."""
        return {place: _contents(*place, bucket) for place, bucket in self._known.items()}

    @property
    def contents(self) -> Mapping[IndexKey, tuple[bytes, ...]]:
        """What was read so far."""
        return self._contents

    def missing(self, keys: Iterable[IndexKey]) -> set[IndexKey]:
        """Keys whose buckets have to be fetched."""
        return {place for place in keys if place not in self._known}

    def learn(self, buckets: Mapping[IndexKey, Bucket]) -> None:
        """Take buckets that were fetched ahead; they count as read only once the view reads them."""
        self._known |= buckets

    def whole(self, index: str) -> WholeIndex:
        """Every bucket of an index; pauses the view."""
        if index not in self._wholes:
            whole: WholeIndex = self._pause(_Need(index, None))
            self._wholes[index] = whole
            for key, version in whole.versions.items():
                self.versions[index, key] = version
                self._contents[index, key] = (_version_bytes(version),)
        return self._wholes[index]

    def held(self, is_news: Callable[[IndexKey, int], bool]) -> dict[IndexKey, bytes]:
        """What keys held, as JSON arrays, to be kept: where it is news, given the key and its version, and short."""
        found: dict[IndexKey, bytes] = {}
        left = MOST_HELD
        for place, version in sorted(self.versions.items()):
            if version <= 0 or place[1].startswith(WHOLE_INDEX) or not is_news(place, version):
                continue  # nothing was ever there, or it is not in one place
            content = b"[" + b",".join(self._contents[place]) + b"]"
            if len(content) <= min(MOST_HELD_BY_KEY, left):
                found[place] = content
                left -= len(content)
        return found

    def _pause(self, need: _Need) -> Any:
        driver = getcurrent().parent
        if driver is None:
            raise RuntimeError("an index can be read only while its view runs: keep the values, not the index")
        if self.fence is None:
            return driver.switch(need)
        self.fence.pause()
        found = driver.switch(need)
        self.fence.resume()
        return found

    def digest(self, sight: Sight | None = None) -> str:
        """Identity of all that was read and counts: equal digests mean that the view would see the same again."""
        contents, seen = sight(self._contents) if sight else (self._contents, b"")
        parts: list[bytes | str] = [seen]
        for (index, key), values in sorted(contents.items()):
            parts += [index, key, *values, b"\0"]
        return digest(*parts)


def digest_of(buckets: Mapping[IndexKey, Bucket], sight: Sight | None = None) -> str:
    """Digest that an evaluation would have that reads just these buckets."""
    reads = Reads(buckets)
    for index, key in buckets:
        reads.bucket(index, key)
    return reads.digest(sight)


def _contents(index: str, key: str, bucket: Bucket) -> tuple[bytes, ...]:
    """What an evaluation sees of a bucket."""
    if key.startswith(WHOLE_INDEX):  # has no values of its own: its version tells that something changed
        return (_version_bytes(bucket.version),)
    if index == CONTACT:  # how many partitions know of it already makes no difference
        return bucket.values[:1]
    if key == ERRORS:  # any number of objects, of which one is named
        return (*bucket.values[:1], str(len(bucket.values)).encode())
    return bucket.values


def _version_bytes(version: int) -> bytes:
    return str(max(version, 0)).encode()


class IndexReader(Index[Any, Any]):
    """An index as one evaluation sees it."""

    def __init__(self, name: str, value_type: Any, reads: Reads, resource: str) -> None:
        self._name = name
        self._resource = resource
        self._reads = reads
        self._decoder = msgspec.json.Decoder(value_type)

    def __getitem__(self, key: Any) -> Collection[Any]:
        return self._decoded(self._reads.bucket(self._name, canonical_key(key)))

    def get(self, key: Any, default: Any = None) -> Any:
        """Values under the key, or the default where there are none."""
        return self[key] or default

    def __contains__(self, key: object) -> bool:
        return bool(self._reads.bucket(self._name, canonical_key(key)))

    def __iter__(self) -> Iterator[Any]:
        return (_key_from(text) for text in sorted(self._reads.whole(self._name).buckets))

    def __len__(self) -> int:
        return len(self._reads.whole(self._name).buckets)

    @property
    def is_stale(self) -> bool:
        """Whether the objects behind the index are being listed again."""
        return bool(self._reads.bucket(*contact_key(self._resource)))

    def _decoded(self, values: tuple[bytes, ...]) -> tuple[Any, ...]:
        return tuple(self._decoder.decode(value) for value in values)


def _key_from(text: str) -> Any:
    return _as_key(msgspec.json.decode(text))


def _as_key(value: Any) -> Any:
    return tuple(_as_key(part) for part in value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


class _LeftOut(Struct, frozen=True):
    """Value of an entry under ERRORS."""

    object: str
    error: str


_left_out = msgspec.json.Decoder(_LeftOut)


class Evaluation:
    """One call of a view: for which parent, with what, and what came out."""

    def __init__(
        self,
        view: BoundView,
        body: bytes,
        now: datetime,
        known: Mapping[IndexKey, Bucket],
        *,
        subject: str = "",
        namespaces: Mapping[str, tuple[str, ...]] | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        """`redactor`: of what is recorded; none: one without a key, which refuses manifests with secret values."""
        self.view = view
        self._redactor = redactor or Redactor()
        self._namespaces = namespaces or {}
        self.subject = subject
        """Name of the parent, for the log."""
        self.body = body
        self.now = now
        self.reads = Reads(known)
        self.level: Level[Any] | None = None
        self.desired = b""
        self.actual = b""
        self.error = ""
        self.blocked = ""
        """Why the view cannot be called: an index that it reads leaves out an object by error."""
        self.guards: list[IndexKey] = [(index, ERRORS) for index in view.guards]
        self.looked_at: bytes | None = None
        """Where the view looked in a parent that it takes as a plain mapping; None for a typed one, or uncalled."""
        self.inputs = ""
        """Identity of what it saw there; empty where `looked_at` is None: the case knows it."""
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext
        """Around the call of the function."""

    def call(self) -> None:
        """Call the view, unless an index blocks it; what it raises becomes the evaluation's error."""
        self.blocked = self._why_blocked()
        if self.blocked:
            return
        reader = self.view.handler.reader
        try:
            parent = filtered(self.view, lambda: reader.take(self.body))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a filter is the user's; that it raises is what the view sees
            self._fail(error)
            return
        if not reader.is_plain:
            self._call(parent)
            return
        notes = Notes()
        self._call(RecordedMapping(parent, notes))
        self.looked_at = observations.encode(notes.observations)
        self.inputs = observations.digest_of(parent, observations.decode(self.looked_at))

    def _call(self, parent: Any) -> None:
        handler = self.view.handler
        try:
            arguments: dict[str, Any] = {handler.parent_parameter: parent}
            for parameter in handler.indices:
                name = self.view.indices[parameter.name]
                arguments[parameter.name] = IndexReader(
                    name, parameter.value_type, self.reads, str(parameter.index.resource.group_resource)
                )
            lookups = ObjectLookups(self.view, self.body, self.reads.bucket, self._namespaces)
            arguments |= handler.given.arguments({Given.NOW: self.now, Given.OBJECTS: lookups})
            if isinstance(handler, ChildrenView):
                arguments[REDACTOR] = self._redactor
            about(object=self.subject, view=self.view.name)
            self.reads.fence = Fence(f"view {self.view.name}", handler.timeout)
            with self.around():
                level = _level(self.reads.fence.run(lambda: handler.function(**arguments)))
            self.desired, self.actual = _encoded("desired", level.desired), _encoded("actual", level.actual)
            if handler.reader.is_plain:  # all that is in the level was read, and is now compared as plain values
                level.desired, level.actual = plain(level.desired), plain(level.actual)
            self.level = level
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's function may raise anything; only this level is concerned
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        handler = self.view.handler
        self.error = fault_reason("view", self.view.name, error)
        tell_fault("view", self.view.name, handler.function, error, subject=self.subject)

    def _why_blocked(self) -> str:
        reasons: list[str] = []
        for index, key in self.guards:  # each is read, so that the end of any wakes the level
            if errors := self.reads.bucket(index, key):
                first = _left_out.decode(errors[0])
                more = f" (and {len(errors) - 1} more objects)" if len(errors) > 1 else ""
                reasons.append(f"index {index} leaves out {first.object}{more}: {first.error}")
        return "; ".join(reasons)


def _level(result: object) -> Level[Any]:
    if isinstance(result, Level):
        return result
    raise HandlerFault(f"returned {'nothing' if result is None else type(result).__name__}, not a Level")


def _encoded(side: str, value: object) -> bytes:
    try:
        return canonical(value)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise HandlerFault(
            f"{side} has no JSON form ({error}): "
            "levels are made of Structs, mappings, sets, lists, texts, numbers and times"
        ) from error


async def evaluate(evaluations: Sequence[Evaluation], fetch: Fetch) -> None:
    """Run the evaluations side by side; each round of their reads is one query for all of them."""
    needs: list[tuple[greenlet, _Need]] = []

    def resume(runner: greenlet, *values: Any) -> None:
        need = runner.switch(*values)
        if not runner.dead:
            needs.append((runner, need))

    guards = sorted(set[IndexKey]().union(*(each.reads.missing(each.guards) for each in evaluations)))
    if guards:
        ahead = await fetch.buckets(guards)
        for evaluation in evaluations:
            evaluation.reads.learn({place: ahead[place] for place in evaluation.reads.missing(evaluation.guards)})
    for evaluation in evaluations:
        resume(greenlet(evaluation.call))
    while needs:
        waiting, needs = needs, []
        keys = sorted({(need.index, need.key) for _, need in waiting if need.key is not None})
        buckets = await fetch.buckets(keys)
        wholes = {index: await fetch.whole(index) for index in sorted({n.index for _, n in waiting if n.key is None})}
        for runner, need in waiting:
            resume(runner, wholes[need.index] if need.key is None else buckets[need.index, need.key])
