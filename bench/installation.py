"""levelog as it runs in a cluster: its processes, a log and a database of their own, and what they use."""

import os
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from sqlalchemy import func, select

from bench.servers import Servers
from levelog_store.connect.database import Database
from levelog_store.tables import levels
from rigs.levelog import Levelog, Running
from rigs.nats import NatsServer

_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(msgspec.Struct):
    """What a process has used so far."""

    cpu_seconds: float
    memory_mb: float


def usage_of(pid: int) -> Usage:
    """CPU time and resident memory, from Linux's /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Usage(
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        memory_mb=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
    )


class Installation:
    """ingest, process and actuate for one operator file; used as `async with Installation(servers, file)`."""

    def __init__(self, servers: Servers, operator: Path) -> None:
        self.operator = operator
        self.processes: dict[str, Running] = {}
        self.nats = NatsServer()
        self.database: Database
        self._servers = servers
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.nats)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="levelog-bench-")))
            url = self._servers.postgres.url_of(await self._servers.postgres.create_database())
            self._levelog = Levelog(folder, self._servers.control_plane.kubeconfig)
            self._levelog.env |= {"LEVELOG_NATS_URL": self.nats.url, "LEVELOG_DATABASE_URL": url}
            ended = await self._levelog.ends("migrate")
            if ended.status:
                raise RuntimeError(ended.stderr)
            self.database = await stack.enter_async_context(await Database.open(url, read_only=True))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            process.stop()
        await self._stack.aclose()

    def start(self, *roles: str) -> None:
        """Start processes: ingest, process, actuate."""
        for role in roles:
            self.processes[role] = self._levelog.start(role, self.operator)

    def check(self) -> None:
        """Raise what a process ended with, if one did."""
        for process in self.processes.values():
            process.check()

    async def levels(self, status: str) -> int:
        """How many levels have a status."""
        async with self.database.reading() as connection:
            statement = select(func.count()).select_from(levels).where(levels.c.status == status)
            return (await connection.execute(statement)).scalar_one()

    async def calls(self) -> int:
        """Calls of views and of reconcile functions so far, as the tables count them."""
        async with self.database.reading() as connection:
            statement = select(func.coalesce(func.sum(levels.c.evaluations + levels.c.round), 0))
            return int((await connection.execute(statement)).scalar_one())
