"""A database for the rest of levelog: write transactions and read snapshots."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from datetime import timedelta
from functools import partial
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec import Struct
from sqlalchemy import Dialect, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.util.concurrency import greenlet_spawn

from levelog.absence import Absence
from levelog_base.errors import ConfigurationError, Unavailable
from levelog_base.wire.timelines import DatabaseTimeline
from levelog_store.connect.drivererrors import CONNECTION_ERRORS, translate_errors, translate_refusal
from levelog_store.connect.engines import (
    POOL_SIZE,
    let_wait,
    postgresql_engine,
    sqlite_readers,
    sqlite_writer,
    to_the_end,
)
from levelog_store.connect.locations import FileLock, Location, locate
from levelog_store.connect.quick import QuickConnection, QuickEngine

if TYPE_CHECKING:
    from levelog_store.connect.hosts import Hosts

STATEMENT_TIME = timedelta(seconds=60)
"""Far longer than any statement of ours; a server that does not answer for so long is gone."""

PROMOTION_SECONDS = 60.0
"""How long what a standby lacks is told after its promotion: what the log has of it is folded within that."""


TOKEN_LENGTH: Final = 8


class ServerFacts(Struct, frozen=True, kw_only=True):
    """What matters of a database server."""

    version: str
    is_durable: bool
    """A commit that waits for the disk does reach it."""


def session_of(token: Any) -> Any:
    """What PostgreSQL shows as `application_name` of the sessions of one open database; of a column, an expression."""
    return "levelog " + token


class Database:
    """An open database; one for each process, used by one event loop.

    PostgreSQL: transactions are READ COMMITTED and concurrent; snapshots are REPEATABLE READ, READ ONLY. SQLite: WAL;
    one transaction writes at a time, snapshots run beside it; a second writing process is refused.

    Errors of statements and commits: Unavailable if the same work may succeed later (connection lost, deadlock,
    time-out, disk full), ConfigurationError if something has to be changed. The transaction was rolled back, unless the
    connection broke during the commit; then its result is unknown, and callers read the checkpoint again. Any other
    error is SQLAlchemy's, and a defect.
    """

    def __init__(
        self,
        location: Location,
        engine: QuickEngine,
        durable: QuickEngine,
        readers: QuickEngine,
        absence: Absence,
        *,
        hosts: "Hosts | None",
        lock: FileLock | None,
        waits: Executor | None,
        read_only: bool,
        token: str,
    ) -> None:
        self._location = location
        self._engine = engine
        self._durable = durable
        self._readers = readers
        self._hosts = hosts
        self.absence = absence
        self._idle: dict[QuickEngine, list[QuickConnection]] = {each: [] for each in (engine, durable, readers)}
        """Connections kept between two transactions; the pools would do more than the transactions."""
        for each in self._idle:
            translate_errors(each.sync_engine, location, self.absence)
        self._lock = lock
        self._waits = waits
        self._read_only = read_only
        self.token = token
        """In the names of all its sessions in PostgreSQL, see `session_of`."""
        self.on_commit: Callable[[float], None] | None = None
        """Called after each commit of a transaction that writes, with the seconds that the commit took."""
        # SQLite has one writer: whoever waits does so here, in order, and not in its busy loop.
        self._writing = asyncio.Lock() if location.path is not None else None

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        read_only: bool = False,
        beside: bool = False,
        is_scratch: bool = False,
        statement_time: timedelta | None = STATEMENT_TIME,
    ) -> Self:
        """Open the database and connect once, so that a problem shows now.

        `url` is a PostgreSQL URL, `sqlite:///` and a path, or a path. A SQLite file is created, unless `read_only`, and
        locked until `close`. `read_only` works beside the process that holds the lock; so does `beside`, for a short
        write that needs no lease. `is_scratch`: SQLite never waits for the disk, since the file is useless after a
        crash. `statement_time` limits statements in PostgreSQL; None: no limit.
        """
        location = locate(url)
        lock: FileLock | None = None
        waits: ThreadPoolExecutor | None = None
        absence = Absence(f"database {location.name}")
        hosts, token = None, secrets.token_hex(4)
        if location.path is None:
            from levelog_store.connect.hosts import Hosts  # noqa: PLC0415 - SQLite needs no asyncpg

            hosts = Hosts(location.url, location.name, absence.began)
            engine_of = partial(
                postgresql_engine, location, hosts, session=session_of(token), statement_time=statement_time
            )
            engine = durable = readers = engine_of(writes=False, is_primary=not read_only)
            if not read_only:
                engine, durable = engine_of(writes=True), engine_of(writes=True, durable=True)
        else:
            if not (read_only or beside):
                lock = FileLock.take(location.path)
                location.path.touch(mode=0o600)  # SQLite gives its other files the same rights
            elif not location.path.exists():
                raise ConfigurationError(f"there is no database file {location.path}")
            if not (read_only or is_scratch):
                waits = ThreadPoolExecutor(1, "levelog SQLite")
            readers = sqlite_readers(location.path)
            engine = durable = readers if read_only else sqlite_writer(location.path, waits=waits)
        database = cls(
            location,
            engine,
            durable,
            readers,
            absence,
            hosts=hosts,
            lock=lock,
            waits=waits,
            read_only=read_only,
            token=token,
        )
        try:
            async with database._begun(engine):
                pass
        except BaseException:
            await database.close()
            raise
        return database

    async def close(self) -> None:
        """Close all connections, then release the file. It runs to its end even if the task is cancelled meanwhile."""
        await to_the_end(self._close())

    async def _close(self) -> None:
        try:
            if self._hosts is not None:
                await self._hosts.close()
            await self._close_idle()
            await self._readers.dispose()
            await self._engine.dispose()
            await self._durable.dispose()
        finally:
            if self._waits is not None:
                self._waits.shutdown()
            if self._lock is not None:
                self._lock.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def name(self) -> str:
        """Host and database, or the file; without a password."""
        return self._location.name

    @property
    def dialect(self) -> Dialect:
        """SQLAlchemy's dialect, which the clauses that differ are chosen by."""
        return self._engine.dialect

    @property
    def is_shared(self) -> bool:
        """Several processes may work on it."""
        return self._location.path is None

    @property
    def timeline(self) -> DatabaseTimeline | None:
        """Which history of PostgreSQL this process works on; None for SQLite, and for engines that cannot tell."""
        return self._hosts.timeline if self._hosts is not None else None

    @property
    def was_promoted(self) -> bool:
        """Whether a standby took over a short while ago, which may have lost commits."""
        promoted_at = self._hosts.promoted_at if self._hosts is not None else None
        return promoted_at is not None and asyncio.get_running_loop().time() - promoted_at < PROMOTION_SECONDS

    def require(self, timeline: DatabaseTimeline, used_by: str) -> None:
        """Work on this timeline from now on: until a host is found that is on it, everything raises Unavailable."""
        if self._hosts is not None:
            self._hosts.require(timeline, used_by)

    @asynccontextmanager
    async def transaction(self, *, durable: bool = True) -> AsyncGenerator[AsyncConnection]:
        """A write transaction: committed at the end of the block, rolled back if the block raises.

        If not `durable`, the commit does not wait for the disk. After a crash (of the server; for SQLite, of the
        machine) the newest such commits may be lost, whole and from the end: never one without all later ones.
        """
        if self._read_only:
            raise ConfigurationError(f"the database {self.name} was opened to read only")
        async with self._writing or nullcontext():
            if self._writing is not None:
                let_wait(self._engine, durable=durable)
            async with self._begun(self._durable if durable else self._engine) as connection:
                yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[AsyncConnection]:
        """One snapshot of the database: every statement in the block sees the same commits."""
        async with self._begun(self._readers) as connection:
            yield connection

    async def server_facts(self) -> ServerFacts:
        """Ask the server about itself."""
        async with self.reading() as connection:
            if not self.is_shared:
                version = (await connection.execute(select(func.sqlite_version()))).scalar_one()
                return ServerFacts(version=f"SQLite {version}", is_durable=True)
            version = (await connection.execute(text("SHOW server_version"))).scalar_one()
            fsync = (await connection.execute(text("SHOW fsync"))).scalar_one()
            return ServerFacts(version=f"PostgreSQL {version}", is_durable=fsync == "on")

    @asynccontextmanager
    async def _begun(self, engine: QuickEngine) -> AsyncGenerator[AsyncConnection]:
        if not self.is_shared:
            await asyncio.sleep(0)  # nothing else here lets other tasks run
        connection = self._idle[engine].pop() if self._idle[engine] else await self._connected(engine)
        unwatch = self._hosts.watch(connection.driver) if self._hosts is not None else None
        try:
            transaction = await connection.begin_quick()
            yield connection
            await connection.send()
            began = monotonic()
            is_kept = transaction.is_active and len(self._idle[engine]) < POOL_SIZE
            if transaction.is_active:
                await greenlet_spawn(transaction.commit)
            if self.on_commit is not None and engine is not self._readers:
                self.on_commit(monotonic() - began)
            self.absence.ended()
        except BaseException:
            # the others may be as broken as this one: SQLAlchemy's pool knows
            await to_the_end(self._close_idle(connection))
            raise
        finally:
            if unwatch is not None:
                unwatch()
        if is_kept:
            self._idle[engine].append(connection)
        else:
            await to_the_end(connection.close())

    async def _connected(self, engine: QuickEngine) -> QuickConnection:
        connection = engine.connect()
        try:
            await connection.start()
        except (Unavailable, *CONNECTION_ERRORS) as error:
            refusal = error if isinstance(error, Unavailable) else translate_refusal(self._location, error)
            if isinstance(refusal, Unavailable):
                self.absence.began(refusal)
                self.absence.covers(refusal)
            if refusal is error:
                raise
            raise refusal from error
        return connection

    async def _close_idle(self, *others: QuickConnection) -> None:
        """Give the pools back what is kept between two transactions, and other connections."""
        for idle in self._idle.values():
            others += tuple(idle)
            idle.clear()
        for connection in others:
            await connection.close()
