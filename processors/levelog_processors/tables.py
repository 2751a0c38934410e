"""The tables of a State: it begins with what they hold, and whatever it folds and decides is written there."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_processors.state.state import State
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import PendingWake
from levelog_store.fold.checkpoints import count_commit, note_mirrored
from levelog_store.fold.ends import write_ends
from levelog_store.fold.statereads import Requested, StoredState, read_state
from levelog_store.fold.statewrites import write_keys, write_reads, write_state, write_wakes_of
from levelog_store.owners.leases import check_checkpoints, check_commits, guard
from levelog_store.rows import LevelRow, Scope, ViewParent


class Tables:
    """How far the tables are, and the writes of one process that bring them up to its State.

    A transaction is `begin`, then `guard` and `write` in it, and `written` once it is committed. Who fails between has
    to `load` again.
    """

    def __init__(self, database: Database, scope: Scope, *, hold_state: bool = True) -> None:
        """Without `hold_state`, what the log can tell is in memory alone."""
        self._database: Final = database
        self._scope: Final = scope
        self._hold_state: Final = hold_state
        self.epochs: Mapping[int, int] = {}
        """Leases under which it commits, by partition."""
        self.is_whole = True
        """What is in memory is in the tables, or can be written; not after a step has failed, until `load`."""
        self._checkpoints: dict[int, int] = {}
        """Checkpoints of the leased partitions, as the tables have them."""
        self._commits: dict[int, int] = {}
        """How many each of these has seen."""
        self._mirrored: dict[int, int] = {}
        """Up to where objects and entries are in the tables, of each of these."""
        self._is_mirroring = False
        """The transaction writes them."""
        self._rows = set[ViewParent]()
        """Levels with a wakeup in the tables."""
        self._unfinished: list[tuple[str, int]] = []
        """Backfills, by name and partition, that are done in memory."""

    async def load(self, epochs: Mapping[int, int], bodies_of: Collection[str]) -> StoredState | None:
        """Read what the tables hold, to work under these leases; None if they hold no state.

        Of the bodies of objects only those of some resources.
        """
        self.epochs, self.is_whole = epochs, True
        if not self._hold_state:
            return None
        async with self._database.reading() as connection:
            found = await read_state(connection, self._scope, bodies_of)
        self._checkpoints = {partition: found.folded_to[partition] for partition in epochs}
        self._mirrored = {partition: found.mirrored[partition] for partition in epochs}
        self._commits = {partition: found.commits[partition] for partition in epochs}
        self._rows = {(wake.view, wake.parent) for wake in found.wakes}
        self._unfinished = [(each.name, each.partition) for each in found.unfinished if each.partition in epochs]
        return found

    def are_behind(self, state: State) -> bool:
        """Tell whether a restart would read records again."""
        return any(state.folded_to[partition] != to for partition, to in self._mirrored.items())

    def check(self, found: Requested) -> None:
        """Raise CommitsLost if the tables are behind what was committed."""
        check_checkpoints(self._scope, found.folded_to, self._checkpoints)
        check_commits(self._scope, found.commits, self._commits)

    def has_row(self, wake: PendingWake) -> None:
        """Note that another process has written a wakeup."""
        self._rows.add((wake.view, wake.parent))

    def begin(self) -> None:
        """Raise RuntimeError if the step before has failed."""
        if not self.is_whole:
            raise RuntimeError("the step before has failed: what is in memory is not what the tables hold")
        self.is_whole = False

    async def guard(self, connection: AsyncConnection, state: State) -> Sequence[LevelRow]:
        """Lock the leases, and write what folded records have ended; returns levels that were made.

        Raises LeaseLost and CommitsLost.
        """
        await guard(connection, self._scope, self.epochs, folded_to=self._checkpoints, commits=self._commits)
        if not state.ends.checkpoints:
            await count_commit(connection, self._scope, min(self.epochs))
        return await write_ends(connection, self._scope, state.ends)

    async def write(self, connection: AsyncConnection, state: State, *, has_time: bool = False) -> None:
        """Write what is to be decided on and, if it `has_time` or cannot wait, what is folded, after `guard`."""
        if not self._hold_state:
            return
        self._is_mirroring = has_time or state.is_pressing
        if not self._is_mirroring:  # by versions a restart tells that levels have read what there is
            read = {place: at for place, at in state.unwritten.keys.items() if place in state.readers}
            await write_keys(connection, self._scope, read)
        else:
            await write_state(connection, self._scope, state.unwritten, self._unfinished)
            fresh = {each: to for each in self.epochs if (to := state.folded_to[each]) != self._mirrored[each]}
            await note_mirrored(connection, self._scope, fresh)
        reads = state.unwritten_reads
        partition_of = {level: state.levels[level].partition for (level, _), is_read in reads.items() if is_read}
        await write_reads(connection, self._scope, reads, partition_of)
        pending = state.wakes.pending
        wakes = {each: pending.get(each) for each in state.wakes.unwritten if each in pending or each in self._rows}
        await write_wakes_of(connection, self._scope, wakes, state.wakes.seen)

    def written(self, state: State, *, read_to: int = 0) -> None:
        """Note that it is committed; `read_to`: up to where the log has no record of the partitions."""
        for partition, point in state.ends.checkpoints.items():
            self._checkpoints[partition] = point.sequence
        for partition in self.epochs if read_to else ():
            state.folded_to[partition] = max(state.folded_to[partition], read_to)
            self._checkpoints[partition] = max(self._checkpoints[partition], read_to)
        for partition in state.ends.checkpoints or [min(self.epochs)]:
            self._commits[partition] = self._commits.get(partition, 0) + 1
        for level in state.wakes.unwritten:
            (self._rows.add if level in state.wakes.pending else self._rows.discard)(level)
        self.is_whole = True
        if self._is_mirroring:
            self._unfinished = []
            self._mirrored |= {partition: state.folded_to[partition] for partition in self.epochs}
        state.written(is_mirrored=self._is_mirroring or not self._hold_state)
