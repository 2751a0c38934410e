"""The tables of a State: it begins with what they hold, and whatever it folds and decides is written there.

This is the one place where a processor writes levels, decisions and intents. Each transaction compares leases and
checkpoints first, and what a State is told as written is committed. State learns from here, too, which wakeups other
processes have left, and which levels a receipt has made; an actuator, which intents were claimed for it. Nothing is
folded or decided here, and no user's function is called.
"""

import logging
import math
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Final, Protocol, TypeAlias

from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.handlers.callnames import shown_write
from levelog_processors.state.state import State
from levelog_store.actuate.claims import Claimant, ClaimedIntent, Claiming, new_claim
from levelog_store.actuate.elapsed import elapsed
from levelog_store.connect.database import Database
from levelog_store.decide import inputreads as stored
from levelog_store.decide.decisions import Decided, IntentRow, Sendable
from levelog_store.decide.decisionwrites import WrittenDecisions, write_valid
from levelog_store.decide.inputreads import SqlIntent
from levelog_store.fold.checkpoints import advance_checkpoints, count_commit, note_mirrored
from levelog_store.fold.ends import write_ends
from levelog_store.fold.statereads import StoredState, read_requested, read_state
from levelog_store.fold.statewrites import write_keys, write_reads, write_state, write_wakes_of
from levelog_store.owners.handlers import Backfill
from levelog_store.owners.leases import check_commits, guard
from levelog_store.rows import LevelRow, Scope, StoredObject, ViewParent

log = logging.getLogger(__name__)

Rounds: TypeAlias = Mapping[tuple[str, str, str], int]
"""The last round of which there are intents, by view, parent and the parent's uid."""


class Tables(Protocol):
    """What an engine has besides its State, and writes whatever that folds and decides to.

    Who fails in `flush` or `deciding` has to `load` again. What others write is answered here for tables that nobody
    else writes.
    """

    scope: Scope
    hold_state: bool
    """They have what the log can tell, too; else that is in memory alone."""
    epochs: Mapping[int, int]
    """Leases under which the engine commits, by partition."""
    is_whole: bool = True
    """What is in memory is in the tables, or can be written; not after a step has failed, until `load`."""

    async def load(self, epochs: Mapping[int, int], bodies_of: Collection[str]) -> StoredState | None:
        """Give what they hold, to work under these leases; None if they hold no state.

        Of the bodies of objects only those of some resources.
        """
        ...

    async def intents_of(
        self, levels: Sequence[ViewParent], unknown: Sequence[ViewParent]
    ) -> tuple[Mapping[ViewParent, Sequence[SqlIntent]], Rounds]:
        """Intents of each level's last round, and older ones that are not settled; last rounds of the `unknown`."""
        ...

    async def last_applied(self, targets: Collection[str]) -> Mapping[str, bytes]:
        """Body of the newest apply to each target that was not superseded."""
        ...

    async def flush(self, state: State, *, read_to: int, has_time: bool) -> None:
        """Write what is folded, see `Engine.flush`; the State has the levels that were made."""
        ...

    def deciding(
        self, state: State, batch: Sequence[Decided], claimant: Claimant | None
    ) -> AbstractAsyncContextManager[WrittenDecisions]:
        """Write the decisions that still hold; at the end what is folded and, by then, to be decided on; then commit.

        Raises LeaseLost and CommitsLost.
        """
        ...

    @property
    def may_lack_levels(self) -> bool:
        """Decisions that were committed may be lost."""
        return False

    @property
    def backfills(self) -> int:
        """How many say, of the leased partitions, that levels are unknown to who reads them here."""
        return 0

    def are_behind(self, state: State) -> bool:  # noqa: ARG002 - of what is in memory alone
        """Tell whether a restart would read records again."""
        return False

    async def objects(self, names: Collection[str]) -> Mapping[str, StoredObject]:  # noqa: ARG002 - see above
        """Objects by name, whose bodies have left memory."""
        return {}

    async def levels_of(self, parents: Collection[str]) -> Mapping[ViewParent, LevelRow]:  # noqa: ARG002 - see above
        """Levels of parents that others decide on, of all views."""
        return {}

    async def calling(self, uids: Collection[str]) -> Collection[str]:  # noqa: ARG002 - see above
        """The parents with these uids that are called for: what a call did is known once its receipt is folded."""
        return ()

    async def notice(self, state: State) -> tuple[datetime, Collection[ViewParent]]:  # noqa: ARG002 - see above
        """Take what others ask for; returns the time by their clock, and what is no level. Raises CommitsLost."""
        return datetime.now(UTC), ()


class SqlTables(Tables):
    """How far the tables in SQL are, and the writes of one process that bring them up to its State."""

    def __init__(self, database: Database, scope: Scope, *, hold_state: bool = True) -> None:
        self._database: Final = database
        self.scope = self._scope = scope
        self.hold_state = hold_state
        self.epochs: Mapping[int, int] = {}
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
        self._unfinished: Collection[Backfill] = ()
        """Of the leased partitions."""
        self._done: Collection[Backfill] = ()
        """Those of them that end with the transaction."""

    async def load(self, epochs: Mapping[int, int], bodies_of: Collection[str]) -> StoredState | None:
        """Read all of it, as of one commit."""
        self.epochs, self.is_whole = epochs, True
        if not self.hold_state:
            return None
        async with self._database.reading() as connection:
            found = await read_state(connection, self._scope, bodies_of)
        check_commits(
            self._scope, {at: (to, found.commits[at]) for at, to in found.folded_to.items()}, dict.fromkeys(epochs), {}
        )
        self._checkpoints = {partition: found.folded_to[partition] for partition in epochs}
        self._mirrored = {partition: found.mirrored[partition] for partition in epochs}
        self._commits = {partition: found.commits[partition] for partition in epochs}
        self._rows = {(wake.view, wake.parent) for wake in found.wakes}
        self._unfinished = [each for each in found.unfinished if each.partition in epochs]
        return found

    @property
    def may_lack_levels(self) -> bool:
        """A replica was promoted that may not have had the last commits."""
        return self._database.was_promoted

    @property
    def backfills(self) -> int:
        """How many there are."""
        return len(self._unfinished)

    def are_behind(self, state: State) -> bool:
        """Tell whether objects and entries are to be written."""
        return any(state.folded_to[at] != to for at, to in self._mirrored.items()) or bool(self._computed(state))

    def _computed(self, state: State) -> list[Backfill]:
        """Backfills that are done in memory: entries as such, levels once all are decided on that the tables have."""
        return [
            each
            for each in self._unfinished
            if each.kind == "index"
            or not (
                state.outdated.is_any_of(each.name, each.partition)
                or state.folded_to[each.partition] < self._checkpoints[each.partition]
            )
        ]

    # -- what others have written

    async def intents_of(
        self, levels: Sequence[ViewParent], unknown: Sequence[ViewParent]
    ) -> tuple[Mapping[ViewParent, Sequence[SqlIntent]], Rounds]:
        """Read them in one snapshot."""
        async with self._database.reading() as connection:
            intents = await stored.read_intents_of(connection, self._scope, levels)
            return intents, await stored.read_last_rounds(connection, self._scope, unknown)

    async def last_applied(self, targets: Collection[str]) -> Mapping[str, bytes]:
        """Read the bodies."""
        async with self._database.reading() as connection:
            return await stored.read_last_applied(connection, self._scope, targets)

    async def objects(self, names: Collection[str]) -> Mapping[str, StoredObject]:
        """Read rows, which may be a second older or newer than what is held."""
        async with self._database.reading() as connection:
            return await stored.read_objects(connection, self._scope, names)

    async def levels_of(self, parents: Collection[str]) -> Mapping[ViewParent, LevelRow]:
        """Read them, whoever decides on them."""
        async with self._database.reading() as connection:
            return await stored.read_levels(connection, self._scope, parents)

    async def calling(self, uids: Collection[str]) -> Collection[str]:
        """Read which have calls under way."""
        async with self._database.reading() as connection:
            return await stored.read_calling(connection, self._scope, uids)

    async def notice(self, state: State) -> tuple[datetime, Collection[ViewParent]]:
        """Take wakeups of other processes; returns the database's time, and those of calls without records."""
        async with self._database.reading() as connection:
            found = await read_requested(connection, self._scope, list(self.epochs))
        points = {each.partition: (each.sequence, each.commits) for each in found.points}
        check_commits(self._scope, points, self._checkpoints, self._commits)
        wakes, calls = state.wakes, set[ViewParent]()
        for wake in found.wakes:
            name = wake.view, wake.parent
            is_call = wake.view not in state.program.views
            if is_call and wakes.seen.get(name) != wake.generation:
                calls.add(name)
            if wakes.request(wake):
                self._rows.add(name)
            if is_call:
                wakes.forget(name)
        return found.moment, calls

    # -- write

    async def flush(self, state: State, *, read_to: int, has_time: bool) -> None:
        """Write in a transaction that does not wait for the disk."""
        self._begin()
        async with self._database.transaction(durable=False) as connection:
            made = await self._guard(connection, state)
            state.levels |= {(row.view, row.parent): row for row in made}
            await self._write(connection, state, has_time=has_time)
            if read_to:
                await advance_checkpoints(connection, self._scope, list(self.epochs), read_to)
        self._written(state, read_to=read_to)

    @asynccontextmanager
    async def deciding(
        self, state: State, batch: Sequence[Decided], claimant: Claimant | None
    ) -> AsyncGenerator[WrittenDecisions]:
        """Write in one transaction; it waits for the disk if the claimant gets intents."""
        self._begin()
        chosen = claimant.choose([row for each in batch for row in each.intents]) if claimant is not None else ()
        claiming: Claiming | None = None
        if claimant is not None and chosen:
            claiming = Claiming(frozenset(chosen), claimant.owner, claimant.lease, new_claim())
        with handing_over(claimant) as claimed:
            async with self._database.transaction(durable=claiming is not None) as connection:
                await self._guard(connection, state)
                written = await write_valid(connection, self._scope, batch, self._scope.fingerprint, claiming=claiming)
                if claiming is not None:
                    claimed.extend(_claimed_intents(written, claiming.number))
                yield written
                await self._write(connection, state)
        _tell(written.valid)
        self._written(state)

    def _begin(self) -> None:
        """Raise RuntimeError if the step before has failed."""
        if not self.is_whole:
            raise RuntimeError("the step before has failed: what is in memory is not what the tables hold")
        self.is_whole = False

    async def _guard(self, connection: AsyncConnection, state: State) -> Sequence[LevelRow]:
        """Lock the leases, and write what folded records have ended; returns levels that were made.

        Raises LeaseLost and CommitsLost.
        """
        await guard(connection, self._scope, self.epochs, folded_to=self._checkpoints, commits=self._commits)
        if not state.ends.checkpoints:
            await count_commit(connection, self._scope, min(self.epochs))
        return await write_ends(connection, self._scope, state.ends)

    async def _write(self, connection: AsyncConnection, state: State, *, has_time: bool = False) -> None:
        """Write what is to be decided on and, if it `has_time` or cannot wait, what is folded, after `_guard`."""
        if not self.hold_state:
            return
        self._is_mirroring = has_time or state.is_pressing
        if not self._is_mirroring:  # by versions a restart tells that levels have read what there is
            read = {place: at for place, at in state.unwritten.keys.items() if place in state.readers}
            await write_keys(connection, self._scope, read)
        else:
            self._done = self._computed(state)
            await write_state(connection, self._scope, state.unwritten, self._done)
            fresh = {each: to for each in self.epochs if (to := state.folded_to[each]) != self._mirrored[each]}
            await note_mirrored(connection, self._scope, fresh)
        reads = state.unwritten_reads
        partition_of = {level: state.levels[level].partition for (level, _), is_read in reads.items() if is_read}
        await write_reads(connection, self._scope, reads, partition_of)
        pending = state.wakes.pending
        changed = state.wakes.unwritten.difference(state.outdated.partition_of)  # of these, a backfill tells
        wakes = {each: pending.get(each) for each in changed if each in pending or each in self._rows}
        await write_wakes_of(connection, self._scope, wakes, state.wakes.seen)

    def _written(self, state: State, *, read_to: int = 0) -> None:
        """Note that it is committed; `read_to`: up to where the log has no record of the partitions."""
        for partition, point in state.ends.checkpoints.items():
            self._checkpoints[partition] = point.sequence
        for partition in self.epochs if read_to else ():
            state.folded_to[partition] = max(state.folded_to[partition], read_to)
            self._checkpoints[partition] = max(self._checkpoints[partition], read_to)
        for partition in state.ends.checkpoints or [min(self.epochs)]:
            self._commits[partition] = self._commits.get(partition, 0) + 1
        for level in state.wakes.unwritten.difference(state.outdated.partition_of):
            (self._rows.add if level in state.wakes.pending else self._rows.discard)(level)
        self.is_whole = True
        if self._is_mirroring:
            self._unfinished = [each for each in self._unfinished if each not in self._done]
            self._mirrored |= {partition: state.folded_to[partition] for partition in self.epochs}
        state.mark_written(is_mirrored=self._is_mirroring or not self.hold_state)


@contextmanager
def handing_over(claimant: Claimant | None) -> Generator[list[ClaimedIntent]]:
    """Hand over what is in the list once the context ends, or have it looked up if it is unknown whether that holds."""
    claimed: list[ClaimedIntent] = []
    began = elapsed()
    try:
        yield claimed
    except BaseException:  # cut off or cancelled while it committed
        began = -math.inf
        raise
    finally:
        if claimant is not None and claimed:
            claimant.begin(claimed, began)


def _claimed_intents(written: WrittenDecisions, number: int) -> list[ClaimedIntent]:
    """The intents that are claimed, by the number of the claim."""
    rows = [(each, row) for each in written.valid for row in each.intents if row.key in written.claimed]
    return [_claimed(each, row, number) for each, row in rows]


def _claimed(decided: Decided, row: IntentRow, number: int) -> ClaimedIntent:
    wake, at = decided.wake, decided.level.evaluated_at
    if at is None:
        raise TypeError(f"{row.target} is decided by a view that was not called")
    return ClaimedIntent(
        **{name: getattr(row, name) for name in Sendable.__struct_fields__},
        view=wake.view,
        parent=wake.parent,
        parent_uid=decided.level.parent_uid,
        partition=wake.partition,
        decided_at=at,
        attempts=1,
        claim=number,
        is_doubtful=False,
    )


def _tell(valid: Sequence[Decided]) -> None:
    """Log one line for all that is news, and each level at debug; a single one is news by its name.

    A handler, timer or daemon is news only if no call can be made for it: the actuator tells how its calls end.
    """
    news = [
        each
        for each in valid
        if (each.level.status != each.basis.status or each.intents)
        and (not each.is_made or each.level.status in ("failed", "blocked"))
    ]
    single = news if len(news) == 1 else []
    for decided in valid if log.isEnabledFor(logging.DEBUG) else single:
        level = decided.level
        log.log(
            logging.INFO if decided in single else logging.DEBUG,
            "%s of %s is %s%s",
            level.view,
            level.parent,
            level.status,
            f" ({level.reason})" if level.reason else "",
            extra={
                "object": level.parent,
                "view": level.view,
                "sequence": level.cause,
                "round": level.round,
                "intents": [shown_write(level.view, row.verb, row.target) for row in decided.intents],
            },
        )
    if len(news) > 1:
        counts = Counter(each.level.status for each in news)
        intents = sum(len(each.intents) for each in news)
        by_status = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        log.info("%d levels: %s", len(news), by_status, extra={"intents": intents})
