"""History with records dropped, swapped, delayed or changed: as it would have been otherwise."""

import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from levelog_base.errors import ConfigurationError
from levelog_base.wire.manifests import Document, documents
from levelog_base.wire.objects import Sequence as LogSequence
from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen, ReceiptNoted
from levelog_history.differences import with_value
from levelog_history.reach import so_long
from levelog_history.records import Recording
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.decide.decisions import Sendable

_BITS: Final = 20
"""Of a sequence, for the records that are moved behind one that stays."""
_LONGEST: Final = timedelta(days=36_500)
"""Most that receipts are delayed; clocks end in the year 9999."""


class Edits(Struct, frozen=True, kw_only=True):
    """The changes; records are named by their sequence in the log."""

    dropped: frozenset[int] = frozenset()
    swapped: tuple[int, int] | None = None
    delay: timedelta = timedelta()
    """Receipts come so much later, by the time of the records."""
    values: tuple[int, str, Any] | None = None
    """A record, a path in its object, and the value that is put there."""

    def __bool__(self) -> bool:
        return bool(self.named or self.delay)

    @property
    def named(self) -> set[int]:
        """The records that are named."""
        return {*self.dropped, *(self.swapped or ()), *(self.values or ())[:1]}

    def moves(self, logged: LoggedRecord) -> bool:
        """Tell whether a record does not stay where it is."""
        if self.delay and isinstance(logged.record, ReceiptNoted):
            return True
        return logged.sequence in self.dropped or logged.sequence in (self.swapped or ())


class WantedEdits(Struct, frozen=True, kw_only=True):
    """The changes as they are typed."""

    dropped: Sequence[int]
    swapped: tuple[int, int] | None
    delay: str
    value: tuple[int, str] | None

    def edits(self) -> Edits:
        """The same, read; without any, history stays as it was. Raises ConfigurationError."""
        edits = Edits(
            dropped=frozenset(self.dropped),
            swapped=self.swapped,
            delay=_duration(self.delay) if self.delay else timedelta(),
            values=_value(*self.value) if self.value else None,
        )
        if len(edits.named) < len(self.dropped) + len(self.swapped or ()) + bool(self.value):
            raise ConfigurationError("a record is named twice: change each in one way")
        return edits


class Edited:
    """A recording with its changes, or without them for comparison.

    Records get other sequences: those that stay have the same ones in both, those that move follow the one before.
    """

    def __init__(self, history: Recording, edits: Edits, *, is_applied: bool = True) -> None:
        self.origin = history.origin
        self.first = history.first
        self.last = history.last
        self.start = None if edits else 0
        """After this record the two begin to differ; None: not read so far."""
        self._history = history
        self._edits = edits
        self._is_applied = is_applied
        self._numbers: dict[int, int] = {}
        """The sequences of moved records, by those in the log."""

    def number(self, sequence: int) -> int:
        """The sequence that a record has in the log."""
        return self._numbers.get(sequence, sequence >> _BITS)

    def place(self, sequence: int) -> int:
        """The record that stays, at or before one: there, what was decided on both recordings is compared."""
        return sequence >> _BITS

    async def records(self) -> AsyncGenerator[LoggedRecord]:
        """All records, by the sequences that they have here.

        Raises ConfigurationError for records that are not there, or are of no object.
        """
        after = moved = 0
        async with self._ordered() as ordered:
            async for logged in ordered:
                if self._edits.moves(logged):
                    moved += 1
                    sequence = (after << _BITS) + moved
                    self._numbers[sequence] = logged.sequence
                else:
                    after, moved = int(logged.sequence), 0
                    sequence = after << _BITS
                yield replace(logged, sequence=LogSequence(sequence))

    @asynccontextmanager
    async def _ordered(self) -> AsyncGenerator[AsyncIterator[LoggedRecord]]:
        async with AsyncExitStack() as stack:  # or each would wait for the end of the loop, which closes all at once
            records = await stack.enter_async_context(aclosing(self._read()))
            if self._is_applied and self._edits.swapped is not None:
                swapped = _swapped(records, *sorted(self._edits.swapped))
                records = await stack.enter_async_context(aclosing(swapped))
            if self._is_applied and self._edits.delay:
                records = await stack.enter_async_context(aclosing(_delayed(records, self._edits.delay)))
            yield records

    async def _read(self) -> AsyncGenerator[LoggedRecord]:
        """Records in the order of the log, without those that are dropped."""
        missing, before = self._edits.named, self.first - 1
        async with aclosing(self._history.records()) as records:
            async for logged in records:
                missing.discard(logged.sequence)
                is_changed = self._edits.values is not None and logged.sequence == self._edits.values[0]
                if self.start is None and (is_changed or self._edits.moves(logged)):
                    self.start = before
                before = logged.sequence
                if not self._is_applied:
                    yield logged
                elif is_changed and self._edits.values is not None:
                    yield _with_value(logged, *self._edits.values[1:])
                elif logged.sequence not in self._edits.dropped:
                    yield logged
        if missing:
            raise ConfigurationError(
                f"there is no record {min(missing)}: history has records from {self.first} to {self.last}, and a "
                "bundle only those of what was exported"
            )


class PastWrites(Struct):
    """Those writes of a history whose receipts it has: an actuator had claimed them before anything else happened."""

    keys: frozenset[str]
    owner: str = ""
    """Nobody: the receipt of any process ends such a claim."""
    lease: timedelta = timedelta(days=365)

    @classmethod
    async def read(cls, history: Recording) -> "PastWrites":
        """Read the keys in a history."""
        records = (each.record async for each in history.records())
        return cls(frozenset([each.key async for each in records if isinstance(each, ReceiptNoted)]))

    def choose(self, intents: Sequence[Sendable]) -> Sequence[str]:
        """Those that were written then."""
        return [each.key for each in intents if each.key in self.keys]

    def begin(self, claimed: Sequence[ClaimedIntent], since: float) -> None:
        """Write nothing: the history has the receipts."""


def _with_value(logged: LoggedRecord, path: str, value: Any) -> LoggedRecord:
    record = logged.record
    if not isinstance(record, ObjectSeen | ObjectDeleted):
        raise ConfigurationError(f"record {logged.sequence} is of no object: nothing in it can be set")
    changed = with_value(msgspec.json.decode(record.body), path, value)
    return replace(logged, record=replace(record, body=msgspec.json.encode(changed)))


async def _swapped(records: AsyncIterator[LoggedRecord], one: int, other: int) -> AsyncGenerator[LoggedRecord]:
    held: list[LoggedRecord] = []
    async for logged in records:
        if logged.sequence == other and held:
            first, *between = held
            for each in (logged, *between, first):
                yield each
            held = []
        elif held or logged.sequence == one:
            held.append(logged)
        else:
            yield logged
    for each in held:
        yield each


async def _delayed(records: AsyncIterator[LoggedRecord], delay: timedelta) -> AsyncGenerator[LoggedRecord]:
    held: list[tuple[Any, int, LoggedRecord]] = []
    now = None
    async for logged in records:
        now = logged.record.time if now is None else max(now, logged.record.time)
        while held and held[0][0] <= now:
            yield heapq.heappop(held)[2]
        if isinstance(logged.record, ReceiptNoted):
            late = replace(logged, record=replace(logged.record, time=now + delay))
            heapq.heappush(held, (now + delay, logged.sequence, late))
        else:
            yield logged
    while held:
        yield heapq.heappop(held)[2]


def _duration(text: str) -> timedelta:
    found = so_long(text)
    if not found or found > _LONGEST:
        raise ConfigurationError(f"--delay-receipt {text}: write how long, as in 3s (s, m, h, d)")
    return found


def _value(sequence: int, text: str) -> tuple[int, str, object]:
    path, is_given, value = text.partition("=")
    if not is_given:
        raise ConfigurationError(f"--set {sequence} {text}: write FIELD=VALUE, as in spec.replicas=2")
    read = list(documents(value.encode(errors="surrogateescape"))) or [Document(1)]
    if len(read) > 1 or read[0].error:
        raise ConfigurationError(f"--set {sequence} {text}: the value is no YAML: {read[0].error or 'it is several'}")
    return sequence, path, read[0].value
