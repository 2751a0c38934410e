"""Leases of partitions: who may fold and decide, shared fairly between live processors.

A lease has an owner, an end by the database's clock, and an epoch, which each change of owner raises. A transaction
that works for a partition begins with `guard`; it cannot commit under an epoch that has passed:

- `guard` locks the lease's row FOR KEY SHARE until the transaction ends. Any number of guarded transactions, and
  renewals, hold that side by side, so they never wait for each other.
- Whoever takes a lease away locks the row FOR UPDATE first, the one lock that waits for FOR KEY SHARE: what was guarded
  has committed by then, and what comes later sees the new epoch.

In SQLite one transaction writes at a time, and needs no locks.
"""

from collections.abc import Mapping
from datetime import timedelta
from time import monotonic
from typing import Final

from sqlalchemy import (
    ColumnElement,
    Dialect,
    Insert,
    Select,
    Table,
    Text,
    Update,
    and_,
    bindparam,
    column,
    exists,
    func,
    or_,
    select,
    update,
)
from sqlalchemy import table as sql_table
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_base.errors import CommitsLost, IdentityMismatch, LeaseLost
from levelog_store.connect.database import TOKEN_LENGTH, Database, session_of
from levelog_store.dialects import (
    OF_SCOPE,
    built_once,
    change,
    insert_for,
    locked,
    mappings,
    named,
    now,
    one_of,
    remove,
    run,
)
from levelog_store.rows import Scope
from levelog_store.tables import checkpoints, leases, processors, scopes

DURATION: Final = timedelta(seconds=15)
"""How long the partitions stand still of a processor whose machine is gone; renewals come three times as often."""

LOOK_EVERY: Final = timedelta(seconds=1.5)
"""How often to look whether other processors are gone; their partitions go to others at the second look."""

HURRY: Final = timedelta(seconds=1)
"""Partitions that somebody gave up stand still for so long at most."""

FORGOTTEN_AFTER: Final = timedelta(minutes=10)
"""Processors that ended without saying so are listed for a while, for people to see."""


async def guard(
    connection: AsyncConnection,
    scope: Scope,
    epochs: Mapping[int, int],
    *,
    folded_to: Mapping[int, int] | None = None,
    commits: Mapping[int, int] | None = None,
) -> None:
    """Let the transaction commit only if each partition's lease has the given epoch, and the scope's owner.

    Call it before any write. The epochs are those under which the work began, not newer ones. Raises LeaseLost if a
    lease changed, or if other code was promoted. A scope without an owner belongs to a replay or a simulation, whose
    tables nobody else leases: then only the epoch is compared.

    `folded_to` are the checkpoints from which the work began, of these partitions and others. Raises CommitsLost if one
    differs: a server that crashed forgets its newest commits, and later work must not be written without them. So it
    does if a partition has not seen so many `commits`. Raises IdentityMismatch if one has no checkpoint.

    It may have waited for a lock, and sees what was committed before; under an unchanged epoch nobody else has written
    what the lease protects since.
    """
    if not epochs:
        raise ValueError("a transaction that is to be guarded has to name its partitions")
    rows = mappings(await run(connection, scope, _guarded, partitions={*epochs, *(folded_to or ())}))
    current: dict[int, int] = {}
    for row in rows:
        if row["fingerprint"] != scope.fingerprint:
            raise _replaced(scope)
        if row["owner"] == (scope.owner or row["owner"]):  # a failover may lose leases, and give their epochs to others
            current[row["partition"]] = row["epoch"]
    for partition, epoch in epochs.items():
        if current.get(partition) != epoch:
            raise LeaseLost(
                f"the lease of partition {partition} for {scope.application} under epoch {epoch} is lost, "
                f"its epoch is {current.get(partition, 'of another owner')} now"
            )
    points = {row["partition"]: (row["sequence"], row["commits"]) for row in rows if row["sequence"] is not None}
    check_commits(scope, points, dict.fromkeys(epochs) | dict(folded_to or {}), commits or {})


def check_commits(
    scope: Scope,
    stored: Mapping[int, tuple[int, int]],
    folded_to: Mapping[int, int | None],
    commits: Mapping[int, int],
) -> None:
    """Raise CommitsLost if a partition is not stored as folded to there, or has not seen so many commits; None: any.

    `stored` has the checkpoint of each partition, and its count of commits. Raises IdentityMismatch if one has none.
    """
    for partition, wanted in folded_to.items():
        if partition not in stored:
            raise IdentityMismatch(
                f"the tables of {scope.application} have no checkpoint of partition {partition}: somebody deleted it; "
                "restore the database, or start with an empty one"
            )
        sequence, count = stored[partition]
        told = sequence if wanted is None else wanted, commits.get(partition, count)
        if told != (sequence, count):
            raise CommitsLost(
                f"partition {partition} of {scope.application} was folded up to {told[0]} by {told[1]} commits, the "
                f"database has it up to {sequence} by {count}: it lost some, and the log is folded again from there"
            )


@built_once
def _guarded(dialect: Dialect) -> Select[int, int, str, str, int, int]:
    table = leases.c
    point = checkpoints.c
    return (
        select(table.partition, table.epoch, table.owner, scopes.c.fingerprint, point.sequence, point.commits)
        .join(scopes, scopes.c.scope == table.scope)
        .outerjoin(checkpoints, (checkpoints.c.scope == table.scope) & (checkpoints.c.partition == table.partition))
        .where(named(dialect, table.partition, "partitions"))
        .order_by(table.partition)
        .with_for_update(read=True, key_share=True, of=leases)
    )


async def free_leases(connection: AsyncConnection, *conditions: ColumnElement[bool]) -> None:
    """Take leases from their owners, once the transactions that they guard are through."""
    table = leases.c
    await connection.execute(select(table.partition).where(*conditions).order_by(table.partition).with_for_update())
    await connection.execute(update(leases).where(*conditions).values(owner="", expires_at=None, epoch=table.epoch + 1))


class Leases:
    """The leases of one processor."""

    def __init__(self, database: Database, scope: Scope, *, owner: str, duration: timedelta = DURATION) -> None:
        self._database = database
        self._scope = scope
        self._duration = duration
        self._is_short = True
        self.concern_others = False
        """The last `tend` left something to others: partitions that were given up, or that they hold of its share."""
        self.share: int | None = None
        """How many partitions were this processor's when that was last looked up; None before that."""
        self.end_at = 0.0
        """When its leases end unless they are renewed, by this process's monotonic clock or a little later."""
        self.owner = owner
        """Unique among all processors that ever ran; never used again after a restart."""
        self._were_there, self._were_absent = set[str](), set[str]()
        """Other processors that had a session at an earlier look, and that had none at the last one."""
        self._are_mine = and_(leases.c.scope == scope.number, leases.c.owner == owner)

    @property
    def interval(self) -> timedelta:
        """When to call `tend` again: sooner while others hold partitions of this processor's share."""
        return min(self._duration / 3, HURRY) if self._is_short else self._duration / 3

    async def tend(self) -> dict[int, int]:
        """Renew its row and its leases, and give up or take leases, so that each processor has its share.

        Returns the epoch of each leased partition. A partition that was given up and taken again has another epoch than
        before. Giving up waits for the transactions that work for the partition. Raises LeaseLost if other code was
        promoted, IdentityMismatch if the tables were started over: in both cases the process has to start again.
        """
        async with self._database.transaction() as connection:
            await self._check(connection)
            await self._renew(connection)
        self.end_at = monotonic() + self._duration.total_seconds()
        async with self._database.transaction() as connection:
            owned = await self._epochs(connection)
            share = await self._share(connection)
            if len(owned) > share:
                given_up = one_of(connection.dialect, leases.c.partition, list(owned)[share:])
                await free_leases(connection, self._are_mine, given_up)
            elif len(owned) < share:
                await self._take(connection, share - len(owned))
            epochs = await self._epochs(connection) if len(owned) != share else owned
        self._is_short, self.share = len(epochs) < share, share
        self.concern_others = self._is_short or len(owned) > share
        return epochs

    async def end_others(self) -> None:
        """End the leases of all other processors at once, if it is certain that none is alive.

        In SQLite it is: the holder of the file lock is the only process, and its predecessor may have been killed.
        """
        async with self._database.transaction() as connection:
            await free_leases(connection, leases.c.scope == self._scope.number, leases.c.owner != self.owner)
            await remove(connection, self._scope, processors, processors.c.owner != self.owner)

    async def free_gone(self) -> bool:
        """Free what processors hold that were killed; tells whether there were any. For PostgreSQL.

        A killed process has no session any more. Who is taken for gone and is not loses its leases, as if they had
        ended. So those count that had a session at an earlier look, and none at two in a row: a failover ends all
        sessions for a moment.
        """
        async with self._database.reading() as connection:
            rows = (await run(connection, self._scope, _sessions)).all()
        there = {row.owner for row in rows if row.is_there}
        absent = {row.owner for row in rows} - there
        gone = sorted(absent & self._were_there & self._were_absent)
        self._were_there, self._were_absent = there | (self._were_there & absent), absent
        if not gone:
            return False
        async with self._database.transaction() as connection:
            mine = leases.c.scope == self._scope.number
            await free_leases(connection, mine, one_of(connection.dialect, leases.c.owner, gone))
            await remove(connection, self._scope, processors, one_of(connection.dialect, processors.c.owner, gone))
        return True

    async def release(self) -> None:
        """Give up everything at once, so that others need not wait for the end of the leases."""
        async with self._database.transaction() as connection:
            await free_leases(connection, self._are_mine)
            await remove(connection, self._scope, processors, processors.c.owner == self.owner)

    async def _check(self, connection: AsyncConnection) -> None:
        row = (await run(connection, self._scope, _standing)).one_or_none()
        if row is None:
            raise IdentityMismatch(f"the tables of {self._scope.application} are gone since this process opened them")
        if row.fingerprint != self._scope.fingerprint:
            raise _replaced(self._scope)
        if row.resets != self._scope.resets:
            raise IdentityMismatch(
                f"the tables of {self._scope.application} were started over since this process opened them"
            )

    async def _renew(self, connection: AsyncConnection) -> None:
        """Say that it is there, and let nothing of others last longer than that: their clock may have been ahead."""
        for table in (processors, leases):
            await run(connection, self._scope, _renewed, table, self._duration, mine=self.owner)
        await run(connection, self._scope, _joined, self._duration, mine=self.owner)

    async def _share(self, connection: AsyncConnection) -> int:
        """How many partitions are this processor's; the shares of all that live add up to all partitions.

        Where they do not divide evenly, those who came first have one more, so that a newcomer moves few.
        """
        live = [row.owner for row in await run(connection, self._scope, _live)]
        each, more = divmod(self._scope.partitions, max(len(live), 1))
        return each + (self.owner in live[:more])

    async def _epochs(self, connection: AsyncConnection) -> dict[int, int]:
        return {row.partition: row.epoch for row in await run(connection, self._scope, _held_by, mine=self.owner)}

    async def _take(self, connection: AsyncConnection, most: int) -> None:
        """Take free leases, and expired ones of others; those that a transaction works under are left for later."""
        table = leases.c
        dialect = connection.dialect
        rows = await connection.execute(
            select(table.partition)
            .where(table.scope == self._scope.number, table.owner != self.owner)
            .where(or_(table.owner == "", table.expires_at <= now(dialect)))
            .order_by(table.partition)
            .limit(most)
            .with_for_update(skip_locked=True)
        )
        partitions = list(rows.scalars())
        if not partitions:
            return
        mine = {"owner": self.owner, "epoch": table.epoch + 1, "expires_at": now(dialect, self._duration)}
        await change(connection, self._scope, leases, one_of(dialect, table.partition, partitions), **mine)
        is_gone = processors.c.expires_at < now(dialect, -FORGOTTEN_AFTER)
        gone = select(processors.c.owner).where(processors.c.scope == self._scope.number, is_gone)
        are_gone = processors.c.owner.in_(gone.with_for_update(skip_locked=True))
        await remove(connection, self._scope, processors, are_gone)


_MINE: Final = bindparam("mine", type_=Text)


@built_once
def _standing(_dialect: Dialect) -> Select[str, int]:
    return select(scopes.c.fingerprint, scopes.c.resets).where(scopes.c.scope == OF_SCOPE)


@built_once
def _renewed(dialect: Dialect, table: Table, duration: timedelta) -> Update:
    ends = now(dialect, duration)
    is_meant = or_(table.c.owner == _MINE, table.c.expires_at > ends)
    return update(table).where(locked(dialect, table, is_meant, key_share=True)).values(expires_at=ends)


@built_once
def _joined(dialect: Dialect, duration: timedelta) -> Insert:
    times = {"joined_at": now(dialect), "expires_at": now(dialect, duration)}
    return insert_for(dialect, processors).values(scope=OF_SCOPE, owner=_MINE, **times).on_conflict_do_nothing()


@built_once
def _live(dialect: Dialect) -> Select[str]:
    table = processors.c
    is_live = table.scope == OF_SCOPE, table.expires_at > now(dialect)
    return select(table.owner).where(*is_live).order_by(table.joined_at, table.owner)


@built_once
def _held_by(_dialect: Dialect) -> Select[int, int]:
    table = leases.c
    are_mine = table.scope == OF_SCOPE, table.owner == _MINE
    return select(table.partition, table.epoch).where(*are_mine).order_by(table.partition)


@built_once
def _sessions(_dialect: Dialect) -> Select[str, bool]:
    """Processors that are present, and whether they have a session: who asks has one."""
    table, sessions = processors.c, sql_table("pg_stat_activity", column("application_name"))
    name = session_of(func.right(table.owner, TOKEN_LENGTH))
    return select(table.owner, exists().where(sessions.c.application_name == name).label("is_there")).where(
        table.scope == OF_SCOPE, table.expires_at > func.now()
    )


def _replaced(scope: Scope) -> LeaseLost:
    return LeaseLost(f"other code of {scope.application} was promoted: this process may not commit any more")
