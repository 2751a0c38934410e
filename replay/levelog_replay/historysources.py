"""Where recorded history comes from: the log up to now, and the decisions that were made on it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from msgspec import Struct

from levelog_base.wire.objects import Application, Cluster, Sequence
from levelog_base.wire.records import LoggedRecord
from levelog_log.reader import Reader
from levelog_log.stream import LogStream
from levelog_log.transport.jetstream import StreamState
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import WithWrites
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

    def __init__(self, stream: LogStream, application: Application, state: StreamState) -> None:
        self._stream = stream
        self.first, self.last = max(state.first_seq, 1), state.last_seq
        self.read_to = self.first - 1
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

    def __init__(self, stream: LogStream, database: Database, scope: Scope, state: StreamState) -> None:
        super().__init__(stream, scope.application, state)
        self._database = database
        self._scope = scope

    def decisions(self) -> AsyncGenerator[WithWrites]:
        """Every decision, in the order of the snapshots that they saw."""
        return read_called(self._database, self._scope)


async def open_recording(stream: LogStream, application: Application) -> LogRecording:
    """The log as it is now; what is recorded from now on is not part of it."""
    return LogRecording(stream, application, await stream.state())


async def open_history(stream: LogStream, database: Database, scope: Scope) -> LiveHistory:
    """The history as it is now; what is recorded from now on is not part of it."""
    return LiveHistory(stream, database, scope, await stream.state())
