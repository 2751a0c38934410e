"""What effects did and handlers were told is in the log and in the tables: whichever is lost, nothing is done again."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from msgspec.structs import replace
from sqlalchemy import delete, select, update

from levelog import Call, Index, Intent, Level, Operator, Resource, Struct, call
from levelog_base.wire.objects import Application
from levelog_log.stream import LogStream, ensure_stream
from levelog_log.transport.connection import connect as connect_nats
from levelog_processors.program import Program
from levelog_sandbox import Sandbox, StatusError
from levelog_store.connect.database import Database
from levelog_store.fold.checkpoints import advance_checkpoints
from levelog_store.tables import levels, metadata, scopes
from rigs.acting import QUICK
from rigs.kinds import definition, manifest
from rigs.logs import delete_stream, expire
from rigs.nats import NatsServer
from rigs.together import PARTITIONS, Together, together
from rigs.waiting import until

Asked = tuple[str, str]
"""Tenant and plan."""
Edge = tuple[str, str | None, str]
"""Tenant, the plan that was handled last, and the plan."""


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
        self.unanswered: set[Asked] = set()
        """Bills that are made, and never answered."""
        self.edges: list[Edge] = []
        """What the handler was told."""
        self._sandbox = sandbox
        self._nats = nats
        self._database_url = database_url
        self._folder = folder
        self._running: Together
        sandbox.user.create(definition("Tenant"))

    def operator(self) -> Operator:
        op = Operator("billing")

        @op.effect(timeout=timedelta(hours=1))
        async def bill(request: Bill, idempotency_key: str) -> int:
            asked = request.tenant, request.plan
            self.keys[asked].append(idempotency_key)
            if asked in self.unanswered:
                await asyncio.Event().wait()
            if asked in self.refused:
                raise ConnectionError("answered 502")
            return len(self.keys)

        @op.view
        def billed(tenant: Tenant, bill: Index[str, Call[Bill, int]]) -> Level[list[str]]:
            return Level([tenant.spec.plan], [each.request.plan for each in bill[tenant.metadata.uid]])

        @op.reconcile(billed)
        def send(tenant: Tenant) -> Iterator[Intent]:
            yield call(bill, Bill(tenant.metadata.name, tenant.spec.plan))

        @op.on.create
        @op.on.update
        async def note(tenant: Tenant, old: Tenant | None) -> None:
            self.edges.append((tenant.metadata.name, old.spec.plan if old else None, tenant.spec.plan))

        return op

    @property
    def told(self) -> set[Asked]:
        """What was billed, and the handler was told of."""
        return self.keys.keys() & {(tenant, plan) for tenant, _, plan in self.edges}

    def answer_all(self) -> None:
        """From now on."""
        self.refused.clear()
        self.unanswered.clear()

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
        where = config, self._nats.url, self._database_url, Application("billing")
        # at its end an actuator waits for a call as long as for a request, and no claim ends by itself
        settings = replace(QUICK, request=timedelta(seconds=0.5), lease=timedelta(hours=1))
        async with together(*where, program, [Tenant], settings=settings) as self._running:
            await until(self._is_served, "the API of tenants")
            yield

    def _is_served(self) -> bool:
        try:
            self._sandbox.user.list("tenants.example.com")
        except StatusError:
            return False
        return True

    async def shows(self, **statuses: str) -> None:
        """Wait until bills have these statuses, all edges are handled, and what was done is in the log as it is now."""

        async def is_there() -> bool:
            self._running.check()
            async with self._running.database.reading() as connection:
                rows = (await connection.execute(select(levels.c.view, levels.c.parent, levels.c.status))).all()
                at = (await connection.execute(select(scopes.c.calls_recorded_at))).scalar_one()
                is_recorded = at is not None and at > datetime.now(UTC) - timedelta(hours=1)
                found = {(view, parent.rpartition("/")[2]): status for view, parent, status in rows}
                wanted = {("billing/billed", name): status for name, status in statuses.items()}
                wanted |= {("billing/note", name): "in_sync" for name in statuses}
                return is_recorded and found.items() >= wanted.items()

        await until(is_there, f"levels {statuses}")

    async def forget_records(self) -> None:
        """Let all records of the log expire but the newest, those of effects long after they were recorded last."""
        async with self._log() as stream:
            await expire(stream, keep=1)
            end = (await stream.state()).last_seq
        async with await Database.open(self._database_url) as database, database.transaction() as connection:
            await advance_checkpoints(connection, self._running.scope, range(PARTITIONS), end)  # idle ones lag behind
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
    """`a` for two plans, `b` for one and another that is never answered, `c` for one that is answered with an error."""
    company.refused.add(("c", "small"))
    company.unanswered.add(("b", "large"))
    for name in "abc":
        company.wants(name, "small")
    await company.shows(a="in_sync", b="in_sync", c="settling")
    for name in "ab":
        company.wants(name, "large")
    await until(lambda: {("a", "large"), ("b", "large")} <= company.told, "the larger bills")
    await company.shows(a="in_sync", b="settling", c="settling")


async def bill_again(company: Company, plan: str) -> None:
    """`a` for another plan, while what `b` was asked for is not answered again."""
    asked = len(company.keys["b", "large"])
    company.wants("a", plan)
    async with company.running():
        await until(lambda: ("a", plan) in company.told and len(company.keys["b", "large"]) > asked, "both bills")
        await company.shows(a="in_sync", b="settling", c="settling")


@ON_SQLITE_OR_ON_BOTH
async def test_invariant_13_losing_one_store_repeats_no_effect_and_15_no_edge_is_lost_and_16_none_is_invented(
    company: Company,
) -> None:
    async with company.running():
        await bill_three(company)
    edges: set[Edge] = {("a", None, "small"), ("b", None, "small"), ("c", None, "small")}
    edges |= {("a", "small", "large"), ("b", "small", "large")}
    assert Counter(company.edges) == Counter(edges)
    done = {
        asked: len(keys) for asked, keys in company.keys.items() if asked not in company.refused | company.unanswered
    }
    for loss, before, plan in (("tables", "large", "larger"), ("log", "larger", "huge"), ("tables", "huge", "whole")):
        await company.lose(loss)
        await bill_again(company, plan)
        edges.add(("a", before, plan))
        assert Counter(company.edges) == Counter(edges)
        done["a", plan] = 1
    company.answer_all()
    async with company.running():
        await company.shows(a="in_sync", b="in_sync", c="in_sync")
    assert Counter(company.edges) == Counter(edges)
    assert company.counts == {(tenant, plan): 1 for tenant, _, plan in edges}
    assert {asked: len(company.keys[asked]) for asked in done} == done, "what was done was not even asked again"


async def test_with_both_stores_lost_what_is_wanted_is_done_again(company: Company) -> None:
    async with company.running():
        await bill_three(company)
    company.answer_all()
    before = {asked: len(keys) for asked, keys in company.keys.items()}
    company.edges.clear()
    await company.lose("log", "tables")
    async with company.running():
        await company.shows(a="in_sync", b="in_sync", c="in_sync")
    assert sorted(company.edges) == [("a", None, "large"), ("b", None, "large"), ("c", None, "small")]
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
