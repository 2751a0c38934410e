"""A PostgreSQL primary and its standby, which change places."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import asyncpg

from rigs.assembled import Assembled
from rigs.postgres import SHIFTED, PostgresServer
from rigs.tcpproxy import TcpProxy
from rigs.waiting import until

_REPLAYED = "SELECT count(*) > 0 AND bool_and(replay_lsn = pg_current_wal_lsn()) FROM pg_stat_replication"


class PostgresPair(Assembled):
    """A primary and a standby, each behind a proxy whose port stays; `url` names both.

    Commits wait for the standby, unless it `is_synchronous` no more. Replication goes through a proxy, too.
    """

    def __init__(self) -> None:
        self.fronts: list[TcpProxy] = []
        self.replication: TcpProxy | None = None
        self.servers: list[PostgresServer] = []
        self.leading = 0
        """Which of the two is the primary."""
        self._standbys = AsyncExitStack()

    async def _open(self, stack: AsyncExitStack) -> None:
        self._standbys = await stack.enter_async_context(AsyncExitStack())
        first = await asyncio.to_thread(PostgresServer)  # proxies of this loop have to go on meanwhile
        self.servers = [first, first]
        await stack.enter_async_context(first)
        for _ in range(2):
            self.fronts.append(await stack.enter_async_context(TcpProxy(first.port)))
        await self.add_standby()

    @property
    def primary(self) -> PostgresServer:
        """The server that takes commits."""
        return self.servers[self.leading]

    @property
    def front(self) -> TcpProxy:
        """The proxy before the primary."""
        return self.fronts[self.leading]

    @property
    def url(self) -> str:
        """For levelog, past both proxies."""
        hosts = ",".join(f"127.0.0.1:{front.port}" for front in self.fronts)
        return f"postgresql://postgres@{hosts}/postgres?search_path=public,pg_catalog"

    async def ask(self, statement: str) -> Any:
        """One value from the primary, past the proxies."""
        connection = await asyncpg.connect(f"postgresql://postgres@127.0.0.1:{self.primary.port}/postgres", timeout=10)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    async def set_clock(self, hours: int) -> None:
        """Set the clock that levelog goes by so many hours ahead of the machine's."""
        await self.primary.execute(SHIFTED.format(hours=hours))

    async def promote(self) -> None:
        """Make the standby the primary; the old one is as it was."""
        self.leading = 1 - self.leading
        await self.primary.execute("SELECT pg_promote()")
        await self.is_synchronous(False)

    async def add_standby(self) -> None:
        """Put a new standby, copied from the primary, in the other place, and wait until it has everything."""
        place = 1 - self.leading
        if self.servers[place] is not self.primary:
            self.servers[place].stop()
        self.replication = await self._standbys.enter_async_context(TcpProxy(self.primary.port))
        standby = await asyncio.to_thread(PostgresServer, standby_of=self.replication.port)
        self.servers[place] = await self._standbys.enter_async_context(standby)
        self.fronts[place].cut("reset")
        self.fronts[place].lead_to(standby.port)

        async def is_replayed() -> bool:
            return bool(await self.ask(_REPLAYED))

        await until(is_replayed, "a standby that has everything")
        await self.is_synchronous(True)

    async def is_synchronous(self, wish: bool) -> None:
        """Have commits wait for the standby, or not."""
        await self.primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{'*' if wish else ''}'")
        await self.primary.execute("SELECT pg_reload_conf()")
