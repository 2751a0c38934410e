"""Where recorded history comes from: the log and the tables of an application, both only read."""

from collections.abc import AsyncIterator
from typing import Protocol

from levelog.objects import Sequence
from levelog.records import LoggedRecord
from levelog_log.reader import Reader
from levelog_log.stream import LogStream
from levelog_replay.scratch import Origin
from levelog_store.asked import Asked, read_asked
from levelog_store.database import Database
from levelog_store.recall import PastDecision, read_called
from levelog_store.scopes import Scope


class History(Protocol):
    """Records and decisions of one application on one cluster."""

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

    def records(self) -> AsyncIterator[list[LoggedRecord]]:
        """Batches of all records up to `last`, in the order of the log."""
        ...

    def decisions(self) -> AsyncIterator[PastDecision]:
        """Every decision, in the order of the snapshots that they saw."""
        ...

    async def intents(self, keys: list[str]) -> dict[str, Asked]:
        """Intents by key, as far as they are kept."""
        ...


class LiveHistory:
    """The history of an application that runs or ran, up to where its log ends now; made by `open_history`."""

    def __init__(self, stream: LogStream, database: Database, scope: Scope, *, first: int, last: int) -> None:
        self._stream = stream
        self._database = database
        self._scope = scope
        self.first = first
        self.last = last
        self.origin = Origin(
            cluster=scope.cluster,
            application=scope.application,
            partitions=scope.partitions,
            stream_created=scope.stream_created,
        )

    async def records(self) -> AsyncIterator[list[LoggedRecord]]:
        """Batches of all records up to `last`, in the order of the log."""
        if self.last < self.first:
            return
        async with Reader(self._stream, start=Sequence(self.first)) as reader:
            while reader.position < self.last:
                batch = await reader.next_batch()
                yield batch if batch[-1].sequence <= self.last else [r for r in batch if r.sequence <= self.last]

    def decisions(self) -> AsyncIterator[PastDecision]:
        """Every decision, in the order of the snapshots that they saw."""
        return read_called(self._database, self._scope)

    async def intents(self, keys: list[str]) -> dict[str, Asked]:
        """Intents by key, as far as they are kept."""
        async with self._database.reading() as connection:
            return await read_asked(connection, self._scope, keys)


async def open_history(stream: LogStream, database: Database, scope: Scope) -> LiveHistory:
    """The history as it is now; what is recorded from now on is not part of it."""
    state = await stream.state()
    return LiveHistory(stream, database, scope, first=max(state.first_seq, 1), last=state.last_seq)
