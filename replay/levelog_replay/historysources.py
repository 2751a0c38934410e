"""History to be decided on again: records, and the decisions that were made on them."""

from collections.abc import AsyncGenerator
from typing import Protocol

from levelog_history.records import LogRecording, Recording
from levelog_log.stream import LogStream
from levelog_log.transport.jetstream import StreamState
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import WithWrites
from levelog_store.look.recall import read_called
from levelog_store.rows import Scope


class History(Recording, Protocol):
    """Records with the decisions that were made on them."""

    @property
    def redaction(self) -> str:
        """Digest of the key and the rules by which secret values were replaced; empty if none is noted."""
        ...

    def decisions(self) -> AsyncGenerator[WithWrites]:
        """Every decision, in the order of the snapshots that they saw."""
        ...


class LiveHistory(LogRecording):
    """The history of an application that runs or ran, up to where its log ends now; made by `open_history`."""

    def __init__(self, stream: LogStream, database: Database, scope: Scope, state: StreamState) -> None:
        super().__init__(stream, scope.application, state)
        self._database = database
        self._scope = scope

    def decisions(self) -> AsyncGenerator[WithWrites]:
        """Every decision, in the order of the snapshots that they saw."""
        return read_called(self._database, self._scope)


async def open_history(stream: LogStream, database: Database, scope: Scope) -> LiveHistory:
    """The history as it is now; what is recorded from now on is not part of it."""
    return LiveHistory(stream, database, scope, await stream.state())
