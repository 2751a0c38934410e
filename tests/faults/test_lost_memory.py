"""What an effect did is remembered in the log and in the tables: whichever is lost, nothing is done again."""

from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from sqlalchemy import delete, select, update

from levelog import Call, Index, Intent, Level, Operator, Resource, Struct, call
from levelog_base.wire.objects import Application
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

Asked = tuple[str, str]
"""Tenant and plan."""


class Bill(Struct):
    tenant: str
    plan: str


class TenantSpec(Struct):
    plan: str


class Tenant(Resource, group="example.com", version="v1", plural="tenants"):
    spec: TenantSpec


class Company:
    """A sandbox with tenants that are billed for their plans, and a log and tables that can be lost."""

    def __init__(self, sandbox: Sandbox, nats: NatsServer, database_url: str, folder: Path) -> None:
        self.keys: dict[Asked, list[str]] = defaultdict(list)
        """Of all bills that were asked for; each is made, whatever is answered."""
        self.refused: set[Asked] = set()
        """Bills that are made, and answered with an error."""
        self._sandbox = sandbox
        self._nats = nats
        self._database_url = database_url
        self._folder = folder
        self._running: Together
        sandbox.user.create(definition("Tenant"))

    def operator(self) -> Operator:
        op = Operator("billing")

        @op.effect
        async def bill(request: Bill, idempotency_key: str) -> int:
            asked = request.tenant, request.plan
            self.keys[asked].append(idempotency_key)
            if asked in self.refused:
                raise ConnectionError("answered 502")
            return len(self.keys)

        @op.view
        def billed(tenant: Tenant, bill: Index[str, Call[Bill, int]]) -> Level[list[str]]:
            return Level([tenant.spec.plan], [each.request.plan for each in bill[tenant.metadata.uid]])

        @op.reconcile(billed)
        def send(tenant: Tenant) -> Iterator[Intent]:
            yield call(bill, Bill(tenant.metadata.name, tenant.spec.plan))

        return op

    @property
    def counts(self) -> dict[Asked, int]:
        """How often each bill was asked for, where the same key counts once."""
        return {asked: len(set(keys)) for asked, keys in self.keys.items()}

    def wants(self, name: str, plan: str) -> None:
        self._sandbox.user.apply(manifest("Tenant", name, plan=plan))

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Ingest, a processor and an actuator."""
        config, program = self._sandbox.kubeconfig(self._folder / "kubeconfig"), Program([self.operator()])
        servers = config, self._nats.url, self._database_url
        async with together(*servers, Application("billing"), program, [Tenant]) as self._running:
            await until(self._is_served, "the API of tenants")
            yield

    def _is_served(self) -> bool:
        try:
            self._sandbox.user.list("tenants.example.com")
        except StatusError:
            return False
        return True

    async def shows(self, **statuses: str) -> None:
        """Wait until the levels of tenants have these statuses, and what effects did is in the log as it is now."""

        async def is_there() -> bool:
            self._running.check()
            async with self._running.database.reading() as connection:
                rows = await connection.execute(select(levels.c.parent, levels.c.status))
                at = (await connection.execute(select(scopes.c.calls_recorded_at))).scalar_one()
                is_recorded = at is not None and at > datetime.now(UTC) - timedelta(hours=1)
                found = {parent.rpartition("/")[2]: status for parent, status in rows}
                return is_recorded and found.items() >= statuses.items()

        await until(is_there, f"levels {statuses}", seconds=30)

    async def forget_records(self) -> None:
        """Let all records of the log expire but the newest, those of effects long after they were recorded last."""
        async with self._log() as stream:
            await expire(stream, keep=1)
        async with await Database.open(self._database_url) as database, database.transaction() as connection:
            await connection.execute(update(scopes).values(calls_recorded_at=datetime.now(UTC) - timedelta(days=2)))

    @asynccontextmanager
    async def _log(self) -> AsyncGenerator[LogStream]:
        async with await connect_nats(self._nats.url) as connection:
            yield await ensure_stream(connection, self._running.scope.cluster, partitions=PARTITIONS)

    async def lose(self, *stores: str) -> None:
        """Empty `log` or `tables`; nothing runs meanwhile."""
        if "log" in stores:
            async with self._log() as stream:
                await delete_stream(stream.connection, stream)
        if "tables" in stores:
            async with await Database.open(self._database_url) as database, database.transaction() as connection:
                for table in metadata.sorted_tables:
                    await connection.execute(delete(table))


ON_SQLITE_OR_ON_BOTH: Final = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True
)


@pytest_asyncio.fixture
async def company(nats_server: NatsServer, database_url: str, tmp_path: Path) -> AsyncIterator[Company]:
    async with Sandbox(bookmark_seconds=1) as sandbox:
        yield Company(sandbox, nats_server, database_url, tmp_path)


async def bill_three(company: Company) -> None:
    """`a` for two plans, `b` for one and another that is answered with an error, `c` for one that is."""
    company.refused |= {("c", "small"), ("b", "large")}
    for name in "abc":
        company.wants(name, "small")
    await company.shows(a="in_sync", b="in_sync")
    for name in "ab":
        company.wants(name, "large")
    await until(lambda: {("a", "large"), ("b", "large")} <= company.keys.keys(), "the larger bills")
    await company.shows(a="in_sync", b="settling", c="settling")


ONCE: Final = {("a", "small"): 1, ("a", "large"): 1, ("b", "small"): 1, ("b", "large"): 1, ("c", "small"): 1}


@ON_SQLITE_OR_ON_BOTH
async def test_invariant_13_losing_one_store_repeats_no_effect(company: Company) -> None:
    async with company.running():
        await bill_three(company)
    assert company.counts == ONCE
    done = {asked: len(keys) for asked, keys in company.keys.items() if asked not in company.refused}
    for loss in ("tables", "log", "tables"):
        await company.lose(loss)
        async with company.running():
            await company.shows(a="in_sync", b="settling", c="settling")
    company.refused.clear()
    async with company.running():
        await company.shows(a="in_sync", b="in_sync", c="in_sync")
    assert company.counts == ONCE
    assert {asked: len(company.keys[asked]) for asked in done} == done, "what was done was not even asked again"


async def test_with_both_stores_lost_what_is_wanted_is_done_again(company: Company) -> None:
    async with company.running():
        await bill_three(company)
    company.refused.clear()
    before = {asked: len(keys) for asked, keys in company.keys.items()}
    await company.lose("log", "tables")
    async with company.running():
        await company.shows(a="in_sync", b="in_sync", c="in_sync")
    more = {asked: len(keys) - before[asked] for asked, keys in company.keys.items()}
    assert more == {("a", "small"): 0, ("a", "large"): 1, ("b", "small"): 0, ("b", "large"): 1, ("c", "small"): 1}


async def test_what_effects_did_is_recorded_again_before_the_log_forgets_it(company: Company) -> None:
    async with company.running():
        company.wants("a", "small")
        await company.shows(a="in_sync")
    await company.forget_records()
    async with company.running():
        await company.shows(a="in_sync")
    await company.lose("tables")
    async with company.running():
        await company.shows(a="in_sync")
    assert company.counts == {("a", "small"): 1}
