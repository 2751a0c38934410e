"""Where recorded history comes from, and which of its decisions to repeat."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Protocol

from msgspec import Struct

from levelog_base.wire.objects import Application, Cluster, ObjectKey, Sequence
from levelog_base.wire.records import LoggedRecord
from levelog_history.reach import Moment
from levelog_log.reader import Reader
from levelog_log.stream import LogStream
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Decision, WithWrites
from levelog_store.look.recall import read_called
from levelog_store.rows import Scope


class Origin(Struct, frozen=True, kw_only=True):
    """Whose history it is; idempotency keys are made of it."""

    cluster: Cluster
    application: Application
    partitions: int
    stream_created: str = ""


class Recording(Protocol):
    """Records of one cluster, as one application sees them."""

    @property
    def origin(self) -> Origin:
        """Whose history it is."""
        ...

    @property
    def first(self) -> int:
        """Sequence of the first record that is there."""
        ...

    @property
    def last(self) -> int:
        """Sequence of the last one, 0 if there is none."""
        ...

    def records(self, start: int = 0) -> AsyncGenerator[list[LoggedRecord]]:
        """Batches of all records from `start` up to `last`, in the order of the log."""
        ...


async def each_record(history: Recording, last: int | None = None) -> AsyncGenerator[LoggedRecord]:
    """All records of a recording up to the last, one by one; end it by `aclosing` unless you read them all."""
    async with aclosing(history.records()) as batches:
        async for batch in batches:
            for logged in batch:
                if last is not None and logged.sequence > last:
                    return
                yield logged


class History(Recording, Protocol):
    """Records with the decisions that were made on them."""

    @property
    def redaction(self) -> str:
        """Digest of the key and the rules by which secret values were replaced; empty if none is noted."""
        ...

    def decisions(self) -> AsyncGenerator[WithWrites]:
        """Every decision, in the order of the snapshots that they saw."""
        ...


class LogRecording:
    """The log up to where it ends now; made by `open_recording`."""

    def __init__(self, stream: LogStream, application: Application, *, first: int, last: int) -> None:
        self._stream = stream
        self.first = first
        self.last = last
        self.read_to = first - 1
        """Sequence up to which somebody has read."""
        self.redaction = stream.redaction
        """Digest of the key and the rules by which secret values were replaced; empty if none is noted."""
        self.origin = Origin(
            cluster=stream.cluster,
            application=application,
            partitions=stream.partitions,
            stream_created=stream.identity.created,
        )

    async def records(self, start: int = 0) -> AsyncGenerator[list[LoggedRecord]]:
        """Batches of all records from `start` up to `last`, in the order of the log."""
        start = max(start, self.first)
        if self.last < start:
            return
        async with Reader(self._stream, start=Sequence(start)) as reader:
            while reader.position < self.last:
                batch = await reader.next_batch()
                self.read_to = max(self.read_to, batch[-1].sequence)
                yield batch if batch[-1].sequence <= self.last else [r for r in batch if r.sequence <= self.last]


class LiveHistory(LogRecording):
    """The history of an application that runs or ran, up to where its log ends now; made by `open_history`."""

    def __init__(self, stream: LogStream, database: Database, scope: Scope, *, first: int, last: int) -> None:
        super().__init__(stream, scope.application, first=first, last=last)
        self._database = database
        self._scope = scope

    def decisions(self) -> AsyncGenerator[WithWrites]:
        """Every decision, in the order of the snapshots that they saw."""
        return read_called(self._database, self._scope)


async def open_recording(stream: LogStream, application: Application) -> LogRecording:
    """The log as it is now; what is recorded from now on is not part of it."""
    state = await stream.state()
    return LogRecording(stream, application, first=max(state.first_seq, 1), last=state.last_seq)


async def open_history(stream: LogStream, database: Database, scope: Scope) -> LiveHistory:
    """The history as it is now; what is recorded from now on is not part of it."""
    state = await stream.state()
    return LiveHistory(stream, database, scope, first=max(state.first_seq, 1), last=state.last_seq)


class Selection(Struct, frozen=True, kw_only=True):
    """Selects records; a field that is empty or None takes all."""

    start: Moment | None = None
    """Decisions made before this record was folded, or before this time, are not among them."""
    end: Moment | None = None
    """Decisions that a later record led to, or that were made later, are not among them."""
    views: frozenset[str] = frozenset()
    """Names, `operator/view`."""
    has_parent: Callable[[ObjectKey], bool] | None = None
    ordinal: int = 0
    """This decision alone."""

    def has(self, past: Decision) -> bool:
        """Tell whether a decision is among them."""
        if self.ordinal and past.ordinal != self.ordinal:
            return False
        if self.views and past.view not in self.views:
            return False
        if self.has_parent is not None and not self.has_parent(ObjectKey.parse(past.parent)):
            return False
        if self.start is not None and self._is_before(past, self.start):
            return False
        return self.end is None or not self.end.is_before(past.cause, past.decided_at)

    def _is_before(self, past: Decision, moment: Moment) -> bool:
        return past.decided_at < moment.time if moment.time is not None else past.seen_to < moment.sequence
