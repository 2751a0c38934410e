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

    def records(self) -> AsyncGenerator[LoggedRecord]:
        """All records up to `last`, in the order of the log; end it by `aclosing` unless you read them all."""
        ...


async def records_to(history: Recording, last: int) -> AsyncGenerator[LoggedRecord]:
    """Records of a recording up to one, which may be before its last; to be ended likewise."""
    async with aclosing(history.records()) as records:
        async for logged in records:
            if logged.sequence > last:
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

    async def records(self) -> AsyncGenerator[LoggedRecord]:
        """All records up to `last`, in the order of the log."""
        if self.last < self.first:
            return
        async with Reader(self._stream, start=Sequence(self.first)) as reader:
            while reader.position < self.last:
                for logged in await reader.next_batch():
                    if logged.sequence <= self.last:
                        self.read_to = max(self.read_to, logged.sequence)
                        yield logged


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
