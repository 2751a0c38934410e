"""Scopes, processors and guarded work for the tests of leases."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Table, func, select, update

from levelog_base.errors import LeaseLost
from levelog_base.wire.objects import Application, Cluster
from levelog_log.stream import LogStream
from levelog_processors.program import Program
from levelog_store.connect.database import Database
from levelog_store.owners.handlers import Handler
from levelog_store.owners.leases import Leases, guard
from levelog_store.owners.scopes import open_scope
from levelog_store.rows import Scope
from levelog_store.tables import checkpoints, leases, processors

PARTITIONS = 8
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


async def scope_of(
    database: Database,
    program: Program | None = None,
    stream: LogStream | None = None,
    *,
    fingerprint: str = "code-1",
    application: str = "webs",
    cluster: str = "cluster",
    partitions: int = PARTITIONS,
    stream_created: str = "stream-1",
    code: Iterable[Handler] = (),
) -> Scope:
    """A scope, opened as a process does that starts: with the code of a program, and for a log, if there is one."""
    if program is not None:
        fingerprint, code = program.fingerprint, program.handlers
    if stream is not None:
        cluster, partitions, stream_created = stream.cluster, stream.partitions, stream.identity.created
    return await open_scope(
        database,
        cluster=Cluster(cluster),
        application=Application(application),
        partitions=partitions,
        stream_created=stream_created,
        fingerprint=fingerprint,
        code=[*code],
    )


def scope_numbered(number: int) -> Scope:
    """A scope for tests of single statements, which need no row of it."""
    return Scope(
        number=number,
        cluster=Cluster("c"),
        application=Application("a"),
        partitions=16,
        fingerprint="code",
        stream_created="",
        resets=0,
    )


SCOPE = scope_numbered(1)


def processor(database: Database, scope: Scope, owner: str) -> Leases:
    """One that nobody takes for dead unless a test says so."""
    return Leases(database, scope, owner=owner, duration=timedelta(hours=1))


async def owned(database: Database, scope: Scope, owner: str) -> dict[int, int]:
    """Epoch of each partition that a processor holds, even expired, while no other processor took it."""
    table = leases.c
    are_its = table.scope == scope.number, table.owner == owner
    async with database.reading() as connection:
        return dict((await connection.execute(select(table.partition, table.epoch).where(*are_its))).all())


async def expire(database: Database, owner: str) -> None:
    """Let the leases of a processor end, as if it had stood still for longer than they last."""
    async with database.transaction() as connection:
        for table in (leases, processors):
            await connection.execute(update(table).where(table.c.owner == owner).values(expires_at=LONG_AGO))


async def fold(database: Database, scope: Scope, epochs: Mapping[int, int], sequence: int) -> None:
    """What a fold does to the checkpoints: guarded, and all of it or nothing."""
    async with database.transaction() as connection:
        await guard(connection, scope, epochs)
        await connection.execute(
            update(checkpoints).where(checkpoints.c.partition.in_(epochs)).values(sequence=sequence)
        )


async def can_commit(database: Database, scope: Scope, epochs: Mapping[int, int]) -> bool:
    try:
        async with database.transaction() as connection:
            await guard(connection, scope, epochs)
    except LeaseLost:
        return False
    return True


async def sequences(database: Database, scope: Scope) -> dict[int, int]:
    async with database.reading() as connection:
        rows = await connection.execute(
            select(checkpoints.c.partition, checkpoints.c.sequence)
            .where(checkpoints.c.scope == scope.number)
            .order_by(checkpoints.c.partition)
        )
        return {row.partition: row.sequence for row in rows}


async def count(database: Database, table: Table, scope: Scope) -> int:
    async with database.reading() as connection:
        counted: Any = await connection.scalar(
            select(func.count()).select_from(table).where(table.c.scope == scope.number)
        )
    return int(counted)
