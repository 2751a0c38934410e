"""Keeps the tables in step with the log: empties them if the log is another one, prunes what is older than it.

It also has the database make statistics as they grow. It folds and decides nothing.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from msgspec import Struct
from sqlalchemy import Table

from levelog.absence import level_of
from levelog_base.counting import counted
from levelog_base.errors import HistoryInDoubt, HistoryLost, Unavailable
from levelog_base.wire.objects import Sequence
from levelog_log.doubts import LOST_QUORUM
from levelog_log.stream import LogStream
from levelog_log.trail import Trail
from levelog_store.connect.database import Database
from levelog_store.fold.checkpoints import read_points
from levelog_store.fold.levelwrites import wake_stuck
from levelog_store.owners.leases import guard
from levelog_store.owners.scopes import reset_scope
from levelog_store.owners.upkeep import PRUNED, Place, analyze_grown, delete_old, find_old
from levelog_store.rows import Scope

log = logging.getLogger(__name__)


async def verify(database: Database, scope: Scope, stream: LogStream) -> Scope:
    """Compare the tables with the log before anything is read or written, and start over if they do not match.

    A recreated stream has another creation time; one that was rolled back ends before the checkpoint, or has another
    record there. Levels keep their round numbers, so that no idempotency key is used twice.
    """
    created = stream.identity.created
    if scope.stream_created != created:
        reason = f"the stream was made at {created}, the tables come from one made at {scope.stream_created}"
        return await _reset(database, scope, created, reason)
    async with database.reading() as connection:
        newest = max(await read_points(connection, scope), key=lambda point: point.record_sequence)
    if newest.record_sequence == 0:
        return scope
    folded_to = Sequence(newest.record_sequence)
    trail = Trail(stream, folded_to, newest=(folded_to, newest.record_id))
    while True:
        try:
            state = await trail.check_whole(folded_to)
        except HistoryInDoubt as doubt:
            log.warning("waits: %s", doubt)
            await asyncio.sleep(LOST_QUORUM.total_seconds() / 5)
        except HistoryLost as lost:
            return await _reset(database, scope, created, str(lost))
        else:
            if state.first_seq <= folded_to:
                return scope
            expired = (
                f"the log begins at {state.first_seq}, and was folded only up to {folded_to}: what was between expired"
            )
            return await _reset(database, scope, created, expired)


async def start_over(database: Database, scope: Scope, epochs: Mapping[int, int], *, reason: str) -> Scope:
    """Empty the tables while they are in use, because the log has a hole after them.

    This cannot wait for the next start: by then, records behind the hole may be folded, and the hole is no longer
    visible. Raises LeaseLost if other processors own the partitions by now: they read what this process missed.
    """
    async with database.transaction() as connection:
        await guard(connection, scope, epochs)
    return await _reset(database, scope, scope.stream_created, reason)


async def _reset(database: Database, scope: Scope, stream_created: str, reason: str) -> Scope:
    log.warning("the tables are folded again from the beginning of the log: %s", reason)
    return await reset_scope(database, scope, stream_created=stream_created, reason=reason)


PARTITION: Final = 0
"""Its owner prunes, for all partitions."""
PRUNE_EVERY: Final = timedelta(hours=1)
PAUSE: Final = timedelta(milliseconds=100)
"""Between two pages, so that folding goes on."""


class Pruner(Struct, frozen=True):
    """Prunes the tables of one application while it holds a lease."""

    database: Database
    scope: Scope
    stream: LogStream
    epoch: int
    """Epoch of the lease of `PARTITION`."""

    async def run(self) -> None:
        """Prune at intervals, until cancelled. Raises LeaseLost, and IdentityMismatch if the log is gone."""
        while True:
            try:
                await self.prune()
            except Unavailable as error:  # the others go on: a database that is away, they find themselves
                log.log(level_of(error), "what is older than the log stays for now: %s", error)
            await asyncio.sleep(PRUNE_EVERY.total_seconds())

    async def prune(self) -> None:
        """Delete all that is older than the log as it is now."""
        first = (await self.stream.state()).first_seq
        deleted = Counter[str]()
        await self._wake_stuck()
        for table in PRUNED if first > 1 else ():
            deleted[table.name] = await self._prune(table, first)
        if total := deleted.total():
            shown = ", ".join(f"{count} of {table}" for table, count in sorted(deleted.items()) if count)
            log.info("deleted %s older than the log: %s", counted(total, "row"), shown, extra={"sequence": first})

    async def _wake_stuck(self) -> None:
        async with self.database.transaction() as connection:
            await guard(connection, self.scope, {PARTITION: self.epoch})
            count = await wake_stuck(connection, self.scope)
        if count:
            log.error("%s settled for ever, with no write under way: decided on again", counted(count, "level"))

    async def _prune(self, table: Table, first: int) -> int:
        """Go through a table once; the search for rows to delete takes no locks."""
        deleted = 0
        after: Place | None = None
        while True:
            async with self.database.reading() as connection:
                places, after = await find_old(connection, self.scope, table, first, after=after)
            if places:
                async with self.database.transaction(durable=False) as connection:
                    await guard(connection, self.scope, {PARTITION: self.epoch})
                    deleted += await delete_old(connection, self.scope, table, first, places)
            if after is None:
                return deleted
            await asyncio.sleep(PAUSE.total_seconds())


FIRST_STATISTICS: Final = 100
STATISTICS_EVERY: Final = 2000
"""Levels decided on after which it is looked which tables have grown."""


class Statistics(Struct, eq=False):
    """Has statistics made as the tables grow: statements are planned by them, and only anew after that."""

    database: Database
    unplanned: int = 0
    """Levels that were decided on since it was looked which have grown."""
    most_unplanned: int = FIRST_STATISTICS

    async def keep(self, done: int) -> None:
        """Count what was done, and look if it is time."""
        self.unplanned += done
        if self.unplanned >= self.most_unplanned:
            self.unplanned, self.most_unplanned = 0, min(2 * self.most_unplanned, STATISTICS_EVERY)
            await analyze_grown(self.database)
