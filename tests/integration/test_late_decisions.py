"""A reconcile function that outlasts its batch, and a commit that nobody hears of.

What was claimed in such a commit is handed over as such. That late decisions count only if their level is still as the
view saw it is shown by the machine: see late_decisions_by_wakeup_alone in rigs/machine/bugs.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog import Intent, Level, Operator, apply
from levelog_base.errors import Unavailable
from levelog_base.wire.objects import Application, Cluster
from levelog_processors.decide.tally import BATCH, EvaluationBatch
from levelog_processors.engine import Engine
from levelog_processors.program import Program
from levelog_processors.tables import SqlTables
from levelog_store.actuate import claims
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.actuate.elapsed import elapsed
from levelog_store.connect.database import Database
from levelog_store.decide import decisionwrites
from levelog_store.decide.decisions import Sendable
from levelog_store.owners.leases import Leases
from levelog_store.owners.scopes import open_scope
from levelog_store.rows import Scope, ViewParent
from levelog_store.tables import intents, metadata, wakeups
from rigs.kinds import Pod
from rigs.typed import Web
from rigs.webs import WEBS, deleted, lists_done, logged, web

PARTITIONS = 2
SHOP = "webs.example.com/default/shop"


class Stepped:
    """One engine on one database, and a reconcile function that returns when the test lets it."""

    def __init__(self, database: Database, scope: Scope, engine: Engine) -> None:
        self._database = database
        self._scope = scope
        self._engine = engine
        self._sequence = 0

    def give_to(self, claimant: "Claimant") -> "Claimant":
        self._engine.claimant = claimant
        return claimant

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._database.reading()

    async def fold(self, *records: Any) -> None:
        placed = logged(records, first=self._sequence + 1, partitions=PARTITIONS)
        self._sequence += len(placed)
        self._engine.fold(placed)
        await self._engine.flush()

    async def decide(self, *, leaving: Sequence[ViewParent] = (), most: int = BATCH) -> EvaluationBatch:
        return await self._engine.decide(leaving=leaving, most=most)

    async def wakeup(self) -> int:
        """What identifies the wakeup."""
        async with self._database.reading() as connection:
            found: int = (await connection.execute(select(wakeups.c.generation))).scalar_one()
        return found

    async def list(self) -> None:
        """Let everything be listed, empty as it is."""
        for partition in range(PARTITIONS):
            placed = logged(lists_done(WEBS, 0), first=self._sequence + 1, partition=partition)
            self._sequence += len(placed)
            self._engine.fold(placed)
        await self._engine.flush()

    async def come_to_rest(self) -> None:
        """Let functions return, and decide until nothing is left to be decided."""
        async with asyncio.timeout(60):
            while True:
                await asyncio.sleep(0)
                await self.decide()
                async with self._database.reading() as connection:
                    if (await connection.execute(wakeups.select())).first() is None:
                        return


def operator(released: asyncio.Event) -> Operator:
    op = Operator("slow")

    @op.view
    def pods(web: Web) -> Level[str]:
        return Level(desired="x", actual=web.spec.image)

    @op.reconcile(pods, writes={Pod: ["apply"]})
    async def converge(web: Web, level: Level[str]) -> list[Intent]:
        await released.wait()
        return (
            []
            if level.actual == "nothing to write"
            else [apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"for-{level.actual}"}})]
        )

    return op


@pytest.fixture
def released() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
async def stepped(tmp_path: Path, released: asyncio.Event) -> AsyncIterator[Stepped]:
    program = Program([operator(released)])
    async with await Database.open(f"sqlite:///{tmp_path}/tables.db", is_scratch=True) as database:
        async with database.transaction() as connection:
            await connection.run_sync(metadata.create_all)
        scope = await open_scope(
            database,
            cluster=Cluster("cluster"),
            application=Application("slow"),
            partitions=PARTITIONS,
            stream_created="stream",
            fingerprint=program.fingerprint,
        )
        engine = Engine(SqlTables(database, scope), program, patience=timedelta(0))
        await engine.load(await Leases(database, scope, owner="test", duration=timedelta(hours=1)).tend())
        found = Stepped(database, scope, engine)
        await found.list()
        yield found
        await engine.close()


async def test_a_level_that_is_left_alone_asks_for_no_further_pass(stepped: Stepped, released: asyncio.Event) -> None:
    released.set()
    await stepped.list()
    await stepped.fold(web("shop", 1, image="nothing to write"), web("hall", 2, image="x"))
    batch = await stepped.decide(leaving=[("slow/pods", SHOP)])
    assert [each.name for each in batch.decided] == [("slow/pods", SHOP.replace("shop", "hall"))]
    assert not batch.has_more


async def test_a_batch_whose_functions_all_still_run_is_followed_by_another(stepped: Stepped) -> None:
    await stepped.fold(web("shop", 1), web("hall", 2))
    first, second = await stepped.decide(most=1), await stepped.decide(most=1)
    assert (first.decided, second.decided) == ([], [])
    assert (first.has_more, second.has_more) == (True, False)


async def test_a_wakeup_that_was_forgotten_and_asked_for_again_is_another_one(stepped: Stepped) -> None:
    shop = web("shop", 1, image="y")
    await stepped.fold(shop)
    first = await stepped.wakeup()
    await stepped.fold(deleted(shop, 2))
    await stepped.fold(web("shop", 3, image="y", uid="second"))
    assert await stepped.wakeup() != first


class Claimant:
    """One that notes what it is given, with since when."""

    owner = "actuator"
    lease = timedelta(seconds=30)

    def __init__(self) -> None:
        self.begun: list[tuple[list[str], float]] = []

    def choose(self, intents: Sequence[Sendable]) -> Sequence[str]:
        return [each.key for each in intents]

    def begin(self, claimed: Sequence[ClaimedIntent], since: float) -> None:
        self.begun.append(([each.key for each in claimed], since))


@pytest.mark.parametrize("error", [None, Unavailable("the connection was lost"), asyncio.CancelledError()])
async def test_what_is_claimed_in_a_commit_that_nobody_hears_of_is_handed_over_as_such(
    stepped: Stepped, released: asyncio.Event, monkeypatch: pytest.MonkeyPatch, error: BaseException | None
) -> None:
    transaction = Database.transaction

    @asynccontextmanager
    async def unheard(self: Database, *, durable: bool = True) -> AsyncGenerator[AsyncConnection]:
        async with transaction(self, durable=durable) as connection:
            yield connection
        if durable and error is not None:
            raise error

    claimant = stepped.give_to(Claimant())
    released.set()
    await stepped.fold(web("shop", 1, image="a"))
    monkeypatch.setattr(Database, "transaction", unheard)
    with pytest.raises(type(error)) if error is not None else nullcontext():
        await stepped.come_to_rest()
    async with stepped.reading() as connection:
        keys = (await connection.execute(select(intents.c.key).where(intents.c.state == "claimed"))).scalars().all()
    [(begun, since)] = claimant.begun
    assert begun == keys
    assert (since == -math.inf) == (error is not None)


async def test_a_claim_that_comes_with_its_decision_counts_from_before_it_is_made(
    stepped: Stepped, released: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert_claimed, made_at = claims.insert_claimed, list[float]()

    async def noted(*arguments: Any, **options: Any) -> set[str]:
        made_at.append(elapsed())
        return await insert_claimed(*arguments, **options)

    monkeypatch.setattr(decisionwrites, "insert_claimed", noted)
    claimant = stepped.give_to(Claimant())
    released.set()
    await stepped.fold(web("shop", 1, image="a"))
    began = elapsed()
    await stepped.come_to_rest()
    [(_, since)] = claimant.begun
    assert began <= since <= made_at[0]
