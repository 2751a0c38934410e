"""A temporary database for recorded history: the tables as they were at some moment."""

import tempfile
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from msgspec import Struct

from levelog.wire.objects import Application, Cluster, ObjectKey
from levelog.wire.records import LoggedRecord, ObjectSeen
from levelog_processors.decide.readiness import Readiness, is_watched
from levelog_processors.fold.batches import Folder
from levelog_processors.fold.objects import Latest
from levelog_processors.fold.rules import Fold
from levelog_processors.program import BoundIndex, Program
from levelog_store.connect.database import Database
from levelog_store.fold.changes import Changes, Held, Wake
from levelog_store.fold.heldreads import read_syncs
from levelog_store.owners.leases import Leases
from levelog_store.owners.scopes import open_scope
from levelog_store.rows import Entry, Scope, ViewParent
from levelog_store.tables import metadata

_LEASE: Final = timedelta(days=365)
"""Nobody else asks for the partitions."""


class Origin(Struct, frozen=True, kw_only=True):
    """Whose history it is; idempotency keys are made of it."""

    cluster: Cluster
    application: Application
    partitions: int
    stream_created: str = ""


class _Lacking(Exception):
    """Older records of some objects have to be folded with these."""

    def __init__(self, names: set[str]) -> None:
        super().__init__()
        self.names = names


class _ThinnedFold(Fold):
    """Notes where a record that was left out matters: the newest cannot be read, or an index function raises for it."""

    def __init__(self, program: Program, application: str, held: Held, thinned: Collection[str]) -> None:
        super().__init__(program, application, held)
        self._thinned = thinned
        self.lacking: set[str] = set()

    def skip(self, logged: LoggedRecord, place: str, error: str) -> None:
        """Leave out a record that cannot be read."""
        if place in self._thinned and isinstance(logged.record, ObjectSeen):
            self.lacking.add(place)
        super().skip(logged, place, error)

    def entries_before(self, index: BoundIndex, name: str, last: Latest) -> Iterator[Entry]:
        """Entries that an object had before; it runs only once they are asked for, where an index function raises."""
        if name in self._thinned:
            self.lacking.add(name)
        yield from super().entries_before(index, name, last)


class _ThinnedFolder(Folder, eq=False):
    """Folds batches that lack records of some objects, and writes nothing where one of those is needed."""

    thinned: Collection[str] = frozenset()
    begun: _ThinnedFold | None = None

    def begin(self, held: Held) -> Fold:
        """The fold of one part of a batch."""
        self.begun = _ThinnedFold(self.program, self.scope.application, held, self.thinned)
        return self.begun

    async def write(
        self, epochs: Mapping[int, int], changes: Changes, folded_to: Mapping[int, int] | None = None
    ) -> Mapping[ViewParent, Wake]:
        """Commit what a part of a batch changes. Raises _Lacking."""
        if self.begun is not None and self.begun.lacking:
            raise _Lacking(self.begun.lacking)
        return await super().write(epochs, changes, folded_to)


class Scratch:
    """The tables of one program, filled by `fold`; made by `open_scratch`, used in one event loop."""

    def __init__(
        self, database: Database, scope: Scope, program: Program, epochs: Mapping[int, int], *, is_waking: bool
    ) -> None:
        self.database = database
        self.scope = scope
        self.program = program
        self.epochs = epochs
        self.folded = [0] * scope.partitions
        """Sequence up to which each partition is folded."""
        self.readiness = Readiness(program, partitions=scope.partitions)
        self._folder = _ThinnedFolder(database, scope, program, is_waking=is_waking)

    async def fold(self, records: Sequence[LoggedRecord], thinned: Collection[str] = frozenset[str]()) -> set[str]:
        """Fold records in the order of the log, as a processor does that owns all partitions.

        `thinned` are objects of which the records hold the newest of an incarnation, and lack older ones. Where those
        are needed, nothing is folded and the result says of which objects.
        """
        self._folder.thinned = thinned
        try:
            folded = await self._folder.fold(self.epochs, records)
        except _Lacking as lacking:
            return lacking.names
        for logged in records:
            self.folded[logged.partition] = logged.sequence
        if folded.has_list:
            async with self.database.reading() as connection:
                rows = (await read_syncs(connection, self.scope)).values()
            self.readiness = Readiness(self.program, rows, partitions=self.scope.partitions)
        return set()

    def is_watched(self, key: ObjectKey) -> bool:
        """Tell whether the log shows what becomes of an object."""
        return is_watched(self.program, self.readiness.namespaces, key)

    @property
    def is_complete(self) -> bool:
        """Whether everything that the program reads was listed once, so that nothing older is missing."""
        return self.program.watched <= self.readiness.listed


@asynccontextmanager
async def open_scratch(
    program: Program, origin: Origin, url: str = "", *, is_waking: bool = True
) -> AsyncGenerator[Scratch]:
    """Make the tables in a SQLite file that goes with the context, or in an empty database at `url`.

    Without `is_waking` folding does not look for levels that are to be decided on, which are known already.
    """
    async with AsyncExitStack() as stack:
        if not url:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="levelog-replay-")))
            url = f"sqlite:///{folder / 'scratch.db'}"
        database = await stack.enter_async_context(await Database.open(url, is_scratch=True))
        async with database.transaction() as connection:
            await connection.run_sync(metadata.create_all, checkfirst=False)
        scope = await open_scope(
            database,
            cluster=origin.cluster,
            application=origin.application,
            partitions=origin.partitions,
            stream_created=origin.stream_created,
            fingerprint=program.fingerprint,
            code=program.handlers,
        )
        epochs = await Leases(database, scope, owner="replay", duration=_LEASE).tend()
        yield Scratch(database, scope, program, epochs, is_waking=is_waking)
