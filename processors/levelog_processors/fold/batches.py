"""Folds batches into the tables: reads the stored state, runs the pure fold, commits changes and checkpoint."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.counting import counted
from levelog.wire.objects import ObjectKey
from levelog.wire.records import HistoryReverted, LoggedRecord, ReceiptNoted, SyncFinished, SyncStarted
from levelog_processors.fold.entries import note_time
from levelog_processors.fold.lists import Mark
from levelog_processors.fold.objects import object_names
from levelog_processors.fold.receipts import levels_of_calls, repeated_calls
from levelog_processors.fold.rules import Fold
from levelog_processors.program import Program
from levelog_store.connect.database import Database
from levelog_store.fold.changes import Changes, Held, Unlisted, Wake
from levelog_store.fold.changewrites import advance_checkpoints, write_changes
from levelog_store.fold.heldreads import (
    ReadRows,
    read_expired,
    read_held,
    read_rounds,
    read_syncs,
    read_times,
    read_unlisted,
)
from levelog_store.owners.leases import guard
from levelog_store.rows import IndexKey, Input, Scope, StoredObject, ViewParent

log = logging.getLogger(__name__)

_NAMED: Final = 10
"""Levels that a line of the log names."""
ALONE: Final[Mapping[type, type]] = {kind: kind for kind in (SyncFinished, HistoryReverted, SyncStarted)}


class Folded(Struct, frozen=True):
    """What folding a batch has changed."""

    records: int
    wakes: dict[ViewParent, Wake]
    has_finished_sync: bool
    has_list: bool
    """A list began or ended: read again which resources and namespaces are listed."""
    keys: set[IndexKey]
    """Keys of indices that changed."""
    has_receipts: bool = False
    frees_targets: bool = False
    """Intents that are committed wait for a target whose intent has ended."""
    has_news: bool = False
    """A level has gone, or is blocked, that daemons may wait for."""


class Folder(Struct, eq=False):
    """Folds the records of the partitions that this processor owns."""

    database: Database
    scope: Scope
    program: Program
    api_versions: Mapping[Input, str] | None = None
    """In which each resource is recorded, by partition; None: to be looked up, since this may have changed."""

    async def fold(
        self, epochs: Mapping[int, int], records: Sequence[LoggedRecord], folded_to: Mapping[int, int] | None = None
    ) -> Folded:
        """Fold a batch; `epochs` are the leases under which it was read.

        `folded_to` are the checkpoints after which it was read; None: no other process commits, and the database loses
        nothing. Raises LeaseLost and CommitsLost, with nothing of the current part of the batch committed.
        """
        reached = dict(folded_to or {})
        wakes: dict[ViewParent, Wake] = {}
        folded: list[Changes] = []
        for part in parts(records):
            is_sweep = isinstance(part[0].record, SyncFinished)
            changes = await (self._sweep(part) if is_sweep else self._records(part))
            wakes |= await self.write(epochs, changes, reached)
            reached |= {partition: point.sequence for partition, point in changes.checkpoints.items()}
            folded.append(changes)
        return self._folded(records, wakes, folded)

    async def read_within(
        self,
        connection: AsyncConnection,
        epochs: Mapping[int, int],
        records: Sequence[LoggedRecord],
        folded_to: Mapping[int, int],
    ) -> Held:
        """Guard a transaction of the caller, and read what it folds records on. Raises as `fold` does."""
        held_by: dict[int, int] = {logged.partition: epochs[logged.partition] for logged in records}
        read = partial(guard, connection, self.scope, held_by, folded_to=folded_to)
        return await self._held(connection, records, within=read)

    async def fold_within(
        self, connection: AsyncConnection, records: Sequence[LoggedRecord], held: Held
    ) -> tuple[Folded, Mapping[str, StoredObject]]:
        """Fold records that are `foldable_at_once` on what `read_within` has read.

        Returns the objects that it has written, too. The wakes are the caller's to write.
        """
        changes = self.begin(held).records(records)
        wakes = await write_changes(connection, self.scope, changes, within=held)
        return self._folded(records, wakes, [changes]), changes.objects

    def _folded(
        self, records: Sequence[LoggedRecord], wakes: dict[ViewParent, Wake], parts: Sequence[Changes]
    ) -> Folded:
        kinds = {type(logged.record) for logged in records}
        gone = {view for changes in parts for view, _ in changes.gone}
        if self.scope.owner:  # else a replay, which decides anew whatever the log tells of
            tell_forgotten({level: to for changes in parts for level, to in changes.forgotten.items()})
        blocked = {view for changes in parts for each in changes.replaced for view in each.views}
        return Folded(
            len(records),
            wakes,
            has_finished_sync=SyncFinished in kinds,
            has_list=not kinds.isdisjoint(ALONE),
            keys={key for changes in parts for key in changes.keys},
            has_receipts=any(changes.receipts for changes in parts),
            frees_targets=any(changes.frees_targets for changes in parts),
            has_news=not self.program.awaited.isdisjoint(gone | blocked),
        )

    def begin(self, held: Held) -> Fold:
        """The fold of one part of a batch."""
        return Fold(self.program, self.scope.application, held)

    async def write(
        self, epochs: Mapping[int, int], changes: Changes, folded_to: Mapping[int, int] | None = None
    ) -> Mapping[ViewParent, Wake]:
        """Commit what a part of a batch changes; returns the levels that it wakes. Raises LeaseLost, CommitsLost."""
        async with self.database.transaction(durable=False) as connection:
            await guard(connection, self.scope, {p: epochs[p] for p in changes.checkpoints}, folded_to=folded_to)
            return await write_changes(connection, self.scope, changes)

    async def confirm(self, epochs: Mapping[int, int], sequence: int, folded_to: Mapping[int, int]) -> None:
        """Note that the owned partitions hold nothing from their checkpoints up to `sequence`."""
        async with self.database.transaction(durable=False) as connection:
            await guard(connection, self.scope, epochs, folded_to=folded_to)
            await advance_checkpoints(connection, self.scope, list(epochs), sequence)

    async def _records(self, records: Sequence[LoggedRecord]) -> Changes:
        async with self.database.reading() as connection:
            held = await self._held(connection, records)
        return self.begin(held).records(records)

    async def _held(
        self, connection: AsyncConnection, records: Sequence[LoggedRecord], within: ReadRows | None = None
    ) -> Held:
        """`within` a transaction that has all partitions, intents under way are read with it: nobody else adds any."""
        names = object_names(records)
        ended = {str(each.record.target) for each in records if isinstance(each.record, ReceiptNoted)}
        kinds = {name: str(ObjectKey.parse(name).group_resource) for name in names}
        indexed = [name for name, kind in kinds.items() if self.program.indices_of(kind)]
        has_parents = any(self.program.views_of(kind) for kind in set(kinds.values()))
        held = await read_held(
            connection,
            self.scope,
            names,
            indexed=indexed,
            has_parents=has_parents,
            targets=names | ended if within is not None else (),
            read=within,
        )
        has_marks = any(isinstance(logged.record, Mark) for logged in records)
        if has_marks or self.api_versions is None:
            held.syncs = await read_syncs(connection, self.scope)
            self.api_versions = {place: row.api_version for place, row in held.syncs.items() if row.api_version}
        held.api_versions = self.api_versions
        if any(isinstance(logged.record, SyncStarted) for logged in records):
            self.api_versions = None
        was_promoted = self.database.was_promoted
        if calling := levels_of_calls(records, with_writes=was_promoted):
            unmade = dict.fromkeys(calling, ("", 0)) if was_promoted else {}
            held.rounds = {**unmade, **await read_rounds(connection, self.scope, calling)}
        if repeated := repeated_calls(records):
            held.entries |= (await read_held(connection, self.scope, (), indexed=repeated, has_parents=False)).entries
        await self._look_for_expired(connection, held, records)
        return held

    async def _sweep(self, records: Sequence[LoggedRecord]) -> Changes:
        async with self.database.reading() as connection:
            started = await read_syncs(connection, self.scope)
            unlisted: list[tuple[Unlisted, int]] = []
            for logged in records:
                record = logged.record
                if not isinstance(record, SyncFinished):
                    raise TypeError(f"a sweep takes finished lists, not {type(record).__name__}")
                known = started.get((logged.partition, str(record.resource)))
                began = known.begun.get(record.sync_id) if known is not None else None
                if began is None or record.has_unnamed:
                    continue
                gone = await read_unlisted(
                    connection,
                    self.scope,
                    logged.partition,
                    str(record.resource),
                    namespaces=record.namespaces,
                    before=began,
                    version=record.version,
                )
                unlisted += [(row, logged.sequence) for row in gone]
            names = [row.object for row, _ in unlisted]
            held = await read_held(connection, self.scope, names, indexed=names, has_parents=False)
            await self._look_for_expired(connection, held, records)
        return self.begin(held).sweep(records, started, unlisted)

    async def _look_for_expired(self, connection: AsyncConnection, held: Held, records: Sequence[LoggedRecord]) -> None:
        """Add what the batch's time may end; nothing is asked where no index has entries that expire."""
        if not self.program.expires:
            return
        held.times = await read_times(connection, self.scope)
        times = dict(held.times)
        for logged in records:
            note_time(times, logged)
        if times:
            partitions = sorted({logged.partition for logged in records})
            held.expired = await read_expired(connection, self.scope, partitions, max(times.values()))


def tell_forgotten(rounds: Mapping[str, int]) -> None:
    """Say which decisions the log tells of and the tables do not know, as after a failover; `rounds` by level."""
    if rounds:
        named = ", ".join(f"{level} (round {to})" for level, to in [*rounds.items()][:_NAMED])
        more = f" and {len(rounds) - _NAMED} more" if len(rounds) > _NAMED else ""
        log.warning(
            "the database has lost the decisions on %s, whose writes the log tells of: they are decided on again, and "
            "what was written may be written once more: %s%s",
            *(counted(len(rounds), "level"), named, more),
        )


def foldable_at_once(records: Sequence[LoggedRecord]) -> bool:
    """Tell whether all that a batch changes is folded in one part: no list begins or ends in it."""
    return not any(type(logged.record) in ALONE for logged in records)


def parts(records: Iterable[LoggedRecord]) -> Iterator[list[LoggedRecord]]:
    """Split a batch where lists finish or history goes back: those are folded by themselves, after all before them."""
    for _, part in groupby(records, key=lambda logged: ALONE.get(type(logged.record))):
        yield list(part)
