"""Engines for both dialects, with the settings that the guarantees depend on.

SQLite runs on the thread of the event loop: a statement takes microseconds, and two switches of threads more than that.
What waits for the disk, or for another process that writes, has a thread.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import event
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.base import SQLiteExecutionContext
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, Pool
from sqlalchemy.util import LRUCache
from sqlalchemy.util.concurrency import await_

from levelog_base.errors import ConfigurationError
from levelog_store.connect.drivererrors import NO_POOLER
from levelog_store.connect.locations import Location
from levelog_store.connect.quick import QuickEngine

if TYPE_CHECKING:
    from levelog_store.connect.hosts import Hosts

IDLE_SECONDS = 15
"""A writing transaction left idle for so long is ended by the server: a process that was stopped there holds locks.

Functions that run inside one have a shorter limit, so that nothing but a stopped process or a broken network takes that
long.
"""

POOL_SIZE = 5
POOL_OVERFLOW = 5
STATEMENTS = 500
"""Prepared statements kept by a connection; all of levelog's are fewer."""

READERS = 8
BUSY_SECONDS = 10.0
"""How long SQLite waits for a reader that recovers or checkpoints the file; writers never meet, see `database`."""
WAITING: Final = ("synchronous=FULL", "wal_autocheckpoint=1000")
"""Settings of a transaction whose commit waits for the disk, and may move the write-ahead log into the file."""
HASTY: Final = ("synchronous=NORMAL", "wal_autocheckpoint=0")
MOST_ROWS: Final = 2000
"""Rows written without waiting for the disk before a commit waits anyway, to keep the write-ahead log small."""
ROWS_OF_A_COMMIT: Final = 10
"""What a commit counts for besides its rows."""


def postgresql_engine(
    location: Location,
    hosts: "Hosts",
    *,
    session: str,
    statement_time: timedelta | None,
    writes: bool,
    durable: bool = False,
    is_primary: bool = True,
) -> QuickEngine:
    """Connections to PostgreSQL; statements that take longer than `statement_time` end in a time-out.

    Those that write are READ COMMITTED. Commits that may be lost in a crash have connections of their own: to say it in
    each transaction is one way more. Those that only read have a snapshot in each transaction, however long user code
    looks at it; unless `is_primary`, they may be to a standby, which shows what was committed a while ago.
    """
    options = (
        {"target_session_attrs": "primary"} if is_primary and not location.url.query.get("target_session_attrs") else {}
    )
    settings = {
        "jit": "off",  # compiling a plan costs more than any of our statements gains by it
        # planning takes three times as long as the longest; see `upkeep.analyze_grown`
        "plan_cache_mode": "force_generic_plan",
    }
    if writes:
        settings["idle_in_transaction_session_timeout"] = f"{IDLE_SECONDS}s"
        settings["synchronous_commit"] = "on" if durable else "off"
    engine = create_async_engine(
        location.url.set(query={}),
        # said in each BEGIN, so that no default of a role or a pooler counts
        isolation_level="READ COMMITTED" if writes else "REPEATABLE READ",
        hide_parameters=True,  # else errors quote them
        json_deserializer=str,  # the tables' own type keeps JSON as the text that it is
        pool_size=POOL_SIZE,
        max_overflow=POOL_OVERFLOW,
        connect_args={
            **options,
            "async_creator_fn": hosts.connect,
            "command_timeout": statement_time.total_seconds() if statement_time else None,
            "prepared_statement_cache_size": STATEMENTS,
            "server_settings": {
                "application_name": session,
                "tcp_keepalives_idle": "60",  # load balancers forget idle connections, some after 4 minutes
                **settings,
            },
        },
    )

    def connected(connection: Any, record: object) -> None:  # noqa: ARG001
        cursor = connection.cursor()
        cursor.execute(
            "SELECT name, current_setting(name) FROM unnest($1::text[]) AS name", (["server_encoding", *settings],)
        )
        found = dict(cursor.fetchall())
        cursor.close()
        connection.rollback()
        if found.pop("server_encoding") != "UTF8":
            raise ConfigurationError(
                f"database {location.name} cannot hold all text, as its encoding is not UTF8: make one by "
                "CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8'"
            )
        lost = ", ".join(f"{name}={value}" for name, value in settings.items() if found[name] != value)
        if lost:
            raise ConfigurationError(f"database {location.name} does not keep {lost} for a session: {NO_POOLER}")

    event.listen(engine.sync_engine, "connect", connected, insert=True)
    if not writes:
        engine.sync_engine.update_execution_options(postgresql_readonly=True)
    return QuickEngine(engine.sync_engine)


BEGIN_TO_WRITE: Final = "BEGIN IMMEDIATE"


def sqlite_writer(path: Path, *, waits: Executor | None) -> QuickEngine:
    """The one connection that writes; each of its transactions takes the file's write lock as it begins.

    It waits for the disk in a thread of `waits`; without that, it never waits, since the file is useless after a crash.
    """
    waiting = ("synchronous=FULL", "busy_timeout=0") if waits else ("synchronous=OFF",)
    pragmas = ("journal_mode=WAL", "foreign_keys=ON", "temp_store=MEMORY", *waiting)
    return _sqlite_engine(path, "rwc", 1, BEGIN_TO_WRITE, pragmas, waits)


def let_wait(engine: QuickEngine, *, durable: bool) -> None:
    """Set whether the commit of a SQLite writer's next transaction waits for the disk."""
    _dialect(engine).is_durable = durable


def sqlite_readers(path: Path) -> QuickEngine:
    """Read-only connections, each transaction in its own snapshot, beside the writer."""
    return _sqlite_engine(path, "ro", READERS, "BEGIN", ("query_only=ON",))


def _sqlite_engine(
    path: Path, mode: str, size: int, begin: str, pragmas: tuple[str, ...], waits: Executor | None = None
) -> QuickEngine:
    # as a URI for `mode`; as_uri() quotes what has a meaning there
    url = URL.create(INLINE, database=path.as_uri(), query={"mode": mode, "uri": "true"})
    engine = create_async_engine(
        url,
        hide_parameters=True,
        pool_size=size,
        max_overflow=0,
        connect_args={"timeout": BUSY_SECONDS, "cached_statements": STATEMENTS, "check_same_thread": False},
    )
    engine.sync_engine.update_execution_options(compiled_cache=_compiled)
    dialect = _dialect(engine)
    dialect.waits, dialect.begins = waits, begin

    def connected(connection: Any, record: object) -> None:  # noqa: ARG001
        connection.isolation_level = None  # transactions begin where `do_begin` says, not where the driver guesses
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()
        dialect.settings = ()

    event.listen(engine.sync_engine, "connect", connected)
    return QuickEngine(engine.sync_engine)


INLINE: Final = "sqlite+inline"
_compiled: Final[LRUCache[Any, Any]] = LRUCache(STATEMENTS)
"""Statements as all engines of SQLite execute them: to compile them again took half of a simulation's start."""


class _Cursor(sqlite3.Cursor):
    """Has all rows once a statement was executed, so that it holds no snapshot open."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._rows: deque[Any] = deque()

    def execute(self, *arguments: Any) -> Any:
        super().execute(*arguments)
        self._rows = deque(super().fetchall())
        return self

    def fetchone(self) -> Any:
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int | None = None) -> list[Any]:
        return [self._rows.popleft() for _ in range(min(size or self.arraysize, len(self._rows)))]

    def fetchall(self) -> list[Any]:
        rows, self._rows = list(self._rows), deque()
        return rows

    async def _async_soft_close(self) -> None:
        """Do nothing: an async engine calls it where a result is read after its statement."""


class _Context(SQLiteExecutionContext):
    def create_default_cursor(self) -> Any:
        return self._dbapi_connection.cursor(_Cursor)

    def create_server_side_cursor(self) -> Any:
        """One that reads row by row, for streams."""
        return self._dbapi_connection.cursor()


class InlineSqlite(SQLiteDialect_pysqlite):
    """The dialect of Python's sqlite3 module, as SQLAlchemy's async engines take it."""

    driver = "inline"
    is_async = True
    supports_statement_cache = True
    supports_server_side_cursors = True
    execution_ctx_cls = _Context

    waits: Executor | None = None
    begins = "BEGIN"
    """How transactions begin."""
    is_durable = True
    """The commit of the next transaction waits for the disk."""
    settings: tuple[str, ...] = ()
    """The settings, `WAITING` or `HASTY`, that the one connection has; none: it is new."""
    _rows = 0
    """Written since a commit waited."""
    _rows_before = 0
    """Written in all when the transaction began."""

    def __eq__(self, other: object) -> bool:
        """Whether the other one compiles statements in the same way."""
        return isinstance(other, InlineSqlite)

    def __hash__(self) -> int:
        return hash(InlineSqlite)

    @classmethod
    def get_pool_class(cls, url: URL) -> type[Pool]:  # noqa: ARG003
        """The pool of async engines."""
        return AsyncAdaptedQueuePool

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:  # noqa: ARG002
        """Execute, and await something: an async engine refuses a driver that never does."""
        cursor.execute(statement, parameters)
        await_(_nothing())

    def do_begin(self, dbapi_connection: Any) -> None:
        """Begin; to write, while another process writes, wait for it in the thread."""
        cursor = dbapi_connection.cursor()
        if self.waits is None:
            cursor.execute(self.begins)
            return
        settings = WAITING if self.is_durable else HASTY
        if self.settings != settings:
            for pragma in settings:
                cursor.execute(f"PRAGMA {pragma}")
            self.settings = settings
        try:
            cursor.execute(BEGIN_TO_WRITE)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            await_(self._apart(partial(_begin_patiently, cursor)))
        self._rows_before = cursor.connection.total_changes

    def do_commit(self, dbapi_connection: Any) -> None:
        """Commit, in the thread if that waits for the disk."""
        if self.waits is None:
            dbapi_connection.commit()
            return
        self._rows += dbapi_connection.total_changes - self._rows_before + ROWS_OF_A_COMMIT
        if self.settings == HASTY and self._rows < MOST_ROWS:
            dbapi_connection.commit()
            return
        self._rows = 0
        if self.settings == HASTY:
            self.settings = ()
            dbapi_connection.execute(f"PRAGMA {WAITING[1]}")
        await_(self._apart(dbapi_connection.commit))

    async def _apart(self, function: Callable[[], object]) -> None:
        """Run in the thread, and be cancelled only when it has ended: nobody else may use the connection meanwhile."""
        await to_the_end(asyncio.get_running_loop().run_in_executor(self.waits, function))

    def do_executemany(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:  # noqa: ARG002
        """Execute for each row."""
        cursor.executemany(statement, parameters)
        await_(_nothing())


def _begin_patiently(cursor: Any) -> None:
    cursor.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000:.0f}")
    try:
        cursor.execute(BEGIN_TO_WRITE)
    finally:
        cursor.execute("PRAGMA busy_timeout=0")


def _dialect(engine: AsyncEngine) -> InlineSqlite:
    dialect = engine.dialect
    if not isinstance(dialect, InlineSqlite):
        raise TypeError(f"{dialect.name} has no such settings")
    return dialect


async def _nothing() -> None:
    pass


async def to_the_end(ending: Awaitable[object]) -> None:
    """Wait for something that must not stop half-way; a cancellation takes effect afterwards."""
    task = asyncio.ensure_future(ending)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # which nobody hears of
        raise cancelled
    task.result()


registry.register(INLINE.replace("+", "."), __name__, InlineSqlite.__name__)
