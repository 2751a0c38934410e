"""The processes of one application, each with proxies of its own between it and everything that it talks to."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import asyncpg
from sqlalchemy.engine import make_url

from rigs.api import Api
from rigs.assembled import Assembled
from rigs.faultproxy import FaultProxy
from rigs.intents import LOCK_INTENTS, end_claims
from rigs.levelog import WEBS_FILE, Levelog, Running
from rigs.logs import forget_leases
from rigs.nats import NatsServer
from rigs.postgres import plain
from rigs.tcpconnection import TcpConnection
from rigs.tcpproxy import TcpProxy

Role = Literal["ingest", "process", "actuate", "run"]
ROLES: tuple[Role, ...] = ("ingest", "process", "actuate")
TOGETHER: tuple[Role, ...] = ("run",)
"""All of them in one process."""

UNSETTLED = """
    SELECT (SELECT count(*) FROM intents WHERE state IN ('pending', 'claimed', 'written')
            OR receipt IS NOT NULL AND NOT (is_relayed AND is_folded))
         + (SELECT count(*) FROM levels WHERE status <> 'in_sync')
"""


class Level(NamedTuple):
    """A row of the table of levels, without what tells how it came about."""

    view: str
    parent: str
    status: str
    desired: str | None
    actual: str | None


class Deployment(Assembled):
    """`levelog ingest`, `process` and `actuate`, or `run`, with an operator file, on PostgreSQL and NATS, for one API.

    `api`, `nats` and `sql` are the proxies by role, to make faults with; a role has those that it needs. `readers` are
    the connections to PostgreSQL that only read. What the test itself asks goes past the proxies.
    """

    def __init__(
        self,
        folder: Path,
        api: Api,
        nats: NatsServer,
        database_url: str,
        *,
        operator_file: Path = WEBS_FILE,
        tokens: Mapping[Role, str] | None = None,
        roles: tuple[Role, ...] = ROLES,
    ) -> None:
        """`tokens`: as whom the processes ask, if not all as the test itself. `roles`: a process for each."""
        self.roles = roles
        self._tokens = tokens or {}
        self.api: dict[Role, FaultProxy] = {}
        self.nats: dict[Role, TcpProxy] = {}
        self.sql: dict[Role, TcpProxy] = {}
        self.running: dict[Role, Running] = {}
        self.levelog = Levelog(folder)
        self.readers: set[TcpConnection] = set()
        self._folder = folder
        self._direct = api
        self._nats = nats
        self.database_url = database_url
        self._operator_file = operator_file
        self._own: Any = None
        self._turn = asyncio.Lock()

    async def _open(self, stack: AsyncExitStack) -> None:
        port = make_url(self.database_url).port
        assert port is not None
        for role in self.roles:
            self.nats[role] = await stack.enter_async_context(TcpProxy(self._nats.port))
            if role != "ingest":
                self.sql[role] = await stack.enter_async_context(TcpProxy(port))
                self.sql[role].on(b"READ ONLY", "client", self.readers.add, times=None)
            if role != "process":
                proxy = FaultProxy(self._direct.url, ca_file=self._direct.ca_file)
                self.api[role] = await stack.enter_async_context(proxy)
        stack.push_async_callback(self._disconnect)
        for role in self.roles:
            stack.callback(self.kill, role)

    async def migrate(self) -> None:
        """Make the tables. Raises AssertionError with what the command printed."""
        ended = await self.levelog.ends("migrate", "--database-url", self.database_url)
        assert ended.status == 0, ended

    def start(self, *roles: Role) -> None:
        """Start processes, all if none is named."""
        for role in roles or self.roles:
            self.running[role] = self.levelog.start(role, self._operator_file, env=self._settings(role))

    def kill(self, role: Role) -> None:
        """SIGKILL; returns when the process is gone."""
        if role in self.running:
            self.running[role].kill()

    async def stop(self, *roles: Role) -> None:
        """End processes, all if none is named, as their supervisor does; each must end with status 0."""
        for role in roles or self.roles:
            running = self.running[role]
            status = await running.stops()
            assert status == 0, f"levelog {role} ended with status {status}:\n{running.log_tail()}"

    async def end_lease_of_ingest(self) -> None:
        """Let who stands by take over now, instead of in nine seconds."""
        await forget_leases(self._nats)

    async def end_leases(self) -> None:
        """Let what killed processes hold end now, in NATS and by the database's clock, instead of in half a minute."""
        await self.end_lease_of_ingest()
        past = "now() - interval '1 second'"
        async with self._connection() as connection:
            await connection.execute(f"UPDATE leases SET expires_at = {past} WHERE owner <> ''")
            await connection.execute(f"UPDATE processors SET expires_at = {past}")
            await connection.execute(
                f"{LOCK_INTENTS}; UPDATE intents SET expires_at = {past}, due_at = {past} WHERE state = 'claimed'"
            )

    async def end_claims_of(self, role: Role) -> None:
        """Let what a killed process has claimed end now, by the database's clock, instead of in half a minute."""
        await end_claims(self.database_url, self.running[role].pid)

    async def levels(self) -> list[Level]:
        """All levels."""
        statement = "SELECT view, parent, status, desired, actual FROM levels ORDER BY view, parent"
        async with self._connection() as connection:
            return [Level(*row) for row in await connection.fetch(statement)]

    async def is_quiet(self) -> bool:
        """Whether each level is in sync, and every receipt went through the log and was folded."""
        async with self._connection() as connection:
            return int(await connection.fetchval(UNSETTLED)) == 0

    def check(self) -> None:
        """Raise ProcessEnded if a process ended by itself."""
        for running in self.running.values():
            running.check()

    def _settings(self, role: Role) -> Mapping[str, str]:
        settings = {"LEVELOG_NATS_URL": self.nats[role].url(self._nats.url), "LEVELOG_LOG_LEVEL": "debug"}
        if role in self.sql:
            settings["LEVELOG_DATABASE_URL"] = self.sql[role].url(plain(self.database_url))
        if role in self.api:
            path = self._folder / f"{role}.kubeconfig"
            settings["KUBECONFIG"] = str(
                self.api[role].kubeconfig(path, token=self._tokens.get(role) or self._direct.token or "none")
            )
        return settings

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Any]:
        """The test's own connection, which is kept: to connect costs more than to ask."""
        async with self._turn:
            if self._own is None or self._own.is_closed():
                self._own = await asyncpg.connect(plain(self.database_url), timeout=10)
            yield self._own

    async def _disconnect(self) -> None:
        if self._own is not None:
            await self._own.close()
            self._own = None
