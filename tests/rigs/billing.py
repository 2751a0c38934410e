"""An operator with an effect whose calls are counted, and everything that it needs to run."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from sqlalchemy import delete, select, update

from levelog import Call, Index, Intent, Level, Operator, Resource, Struct, call
from levelog_base.wire.objects import Application, Cluster
from levelog_log.stream import LogStream, ensure_stream
from levelog_log.transport.connection import connect as connect_nats
from levelog_processors.program import Program
from levelog_sandbox import Sandbox, StatusError
from levelog_store.connect.database import Database
from levelog_store.tables import levels, metadata, scopes
from rigs.kinds import definition, manifest
from rigs.logs import delete_stream, expire
from rigs.nats import NatsServer
from rigs.together import PARTITIONS, Together, together
from rigs.waiting import until

APPLICATION: Final = Application("billing")
TENANTS: Final = "tenants.example.com"


class Bill(Struct):
    tenant: str
    plan: str


class TenantSpec(Struct):
    plan: str


class Tenant(Resource, group="example.com", version="v1", plural="tenants"):
    spec: TenantSpec


class Till:
    """Counts what it is asked, by tenant and plan; all of it is done, whatever is answered."""

    def __init__(self) -> None:
        self.keys: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.refused: set[tuple[str, str]] = set()
        """Answered with an error."""
        self.unanswered: set[tuple[str, str]] = set()
        """Whoever asks waits until he gives up."""

    @property
    def lost(self) -> set[tuple[str, str]]:
        """What is done without its caller's knowledge."""
        return self.refused | self.unanswered

    def answer_all(self) -> None:
        """From now on."""
        self.refused.clear()
        self.unanswered.clear()

    @property
    def counts(self) -> dict[tuple[str, str], int]:
        """How often each was asked, where the same key counts once."""
        return {asked: len(set(keys)) for asked, keys in self.keys.items()}

    async def ask(self, asked: tuple[str, str], key: str) -> int:
        self.keys[asked].append(key)
        if asked in self.unanswered:
            await asyncio.Event().wait()
        if asked in self.refused:
            raise ConnectionError("answered 502")
        return len(self.keys)


def billing(till: Till) -> Operator:
    """Each tenant is billed for its plan."""
    op = Operator("billing")

    @op.effect(timeout=timedelta(seconds=3))  # so long a call waits that nobody answers
    async def bill(request: Bill, idempotency_key: str) -> int:
        return await till.ask((request.tenant, request.plan), idempotency_key)

    @op.view
    def billed(tenant: Tenant, bill: Index[str, Call[Bill, int]]) -> Level[list[str]]:
        return Level([tenant.spec.plan], [each.request.plan for each in bill[tenant.metadata.uid]])

    @op.reconcile(billed)
    def send(tenant: Tenant) -> Iterator[Intent]:
        yield call(bill, Bill(tenant.metadata.name, tenant.spec.plan))

    return op


def tenant(name: str, plan: str) -> dict[str, Any]:
    return manifest("Tenant", name, plan=plan)


class Company:
    """A sandbox with tenants, a log and tables, each of which can be emptied while nothing runs."""

    def __init__(self, sandbox: Sandbox, till: Till, nats: NatsServer, database_url: str, folder: Path) -> None:
        self.sandbox = sandbox
        self.till = till
        self._nats = nats
        self._database_url = database_url
        self._folder = folder
        self.database: Database
        self._cluster: Cluster
        self._running: Together
        sandbox.user.create(definition("Tenant"))

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Ingest, a processor and an actuator."""
        kubeconfig = self.sandbox.kubeconfig(self._folder / "kubeconfig")
        program = Program([billing(self.till)])
        async with together(kubeconfig, self._nats.url, self._database_url, APPLICATION, program, [Tenant]) as running:
            self._cluster, self.database, self._running = running.scope.cluster, running.database, running
            await until(self._is_served, "the API of tenants")
            yield

    async def _is_served(self) -> bool:
        try:
            self.sandbox.user.list(TENANTS)
        except StatusError:
            return False
        return True

    async def shows(self, **statuses: str) -> None:
        """Wait until the levels of tenants have these statuses."""

        async def is_there() -> bool:
            self._running.check()
            async with self.database.reading() as connection:
                rows = await connection.execute(select(levels.c.parent, levels.c.status))
                return {parent.rpartition("/")[2]: status for parent, status in rows}.items() >= statuses.items()

        await until(is_there, f"levels {statuses}", seconds=30)

    async def is_asked(self, *asked: tuple[str, str]) -> None:
        """Wait until the till was asked for each of these."""
        await until(lambda: {*asked} <= self.till.keys.keys(), f"calls for {asked}", seconds=30)

    async def has_recorded(self) -> None:
        """Wait until what effects did is in the log as it is now."""

        async def is_there() -> bool:
            async with self.database.reading() as connection:
                at = (await connection.execute(select(scopes.c.calls_recorded_at))).scalar_one()
                return at is not None and at > datetime.now(UTC) - timedelta(hours=1)

        await until(is_there, "calls that are recorded", seconds=30)

    async def forget_records(self) -> None:
        """Let all records of the log expire but the newest, those of effects long after they were recorded last."""
        async with self._log() as stream:
            await expire(stream, keep=1)
        async with await Database.open(self._database_url) as database, database.transaction() as connection:
            await connection.execute(update(scopes).values(calls_recorded_at=datetime.now(UTC) - timedelta(days=2)))

    @asynccontextmanager
    async def _log(self) -> AsyncGenerator[LogStream]:
        async with await connect_nats(self._nats.url) as connection:
            yield await ensure_stream(connection, self._cluster, partitions=PARTITIONS)

    async def lose(self, *stores: str) -> None:
        """Empty `log` or `tables`; nothing runs meanwhile."""
        if "log" in stores:
            async with self._log() as stream:
                await delete_stream(stream.connection, stream)
        if "tables" in stores:
            async with await Database.open(self._database_url) as database, database.transaction() as connection:
                for table in metadata.sorted_tables:
                    await connection.execute(delete(table))
