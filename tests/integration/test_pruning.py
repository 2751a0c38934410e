"""Tables hold what is needed now and what the log still tells of; the rest goes, as do handled deletions."""

import asyncio
import logging
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Table, delete, insert, select, text

from levelog import Operator
from levelog.handlers.indexers import call_entry
from levelog_processors.engine import Engine
from levelog_processors.keys import calls_key
from levelog_processors.program import Program
from levelog_processors.tables import SqlTables
from levelog_processors.upkeep import PARTITION, Pruner
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import PendingWake
from levelog_store.dialects import rows_of
from levelog_store.fold.statewrites import Unwritten, write_state, write_wakes_of
from levelog_store.owners.upkeep import PRUNED, delete_old, find_old
from levelog_store.rows import Entry, LevelRow, Scope
from levelog_store.tables import decisions, index_entries, intents, key_versions, leases, levels, objects, tombstones
from rigs.intents import NOON, intent
from rigs.kinds import Web
from rigs.leasing import SCOPE, processor, scope_of
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.storedobjects import stored_object
from rigs.waiting import until
from rigs.webs import deleted, pod, receipt, web

EVERYTHING = 2**62
"""A log that begins so late has lost all that there was."""


async def prune_all(stack: Processing) -> dict[str, int]:
    deleted: dict[str, int] = {}
    async with stack.database.transaction() as connection:
        for table in PRUNED:
            places, _ = await find_old(connection, stack.scope, table, EVERYTHING, after=None)
            deleted[table.name] = await delete_old(connection, stack.scope, table, EVERYTHING, places) if places else 0
    return deleted


async def write(stack: Processing, version: int) -> None:
    """Carry out what is pending, let the log show it, and prune between each step."""
    await stack.claim()
    await prune_all(stack)
    for row in await stack.rows(intents):
        if row["state"] != "claimed":
            continue
        name = row["target"].rpartition("/")[2]
        there = pod(name, version, owner="uid-shop")
        await stack.folded(await stack.tell(receipt(row, version=version)))
        await prune_all(stack)
        await stack.folded(await stack.tell(there if row["verb"] == "apply" else deleted(there, version)))
        await prune_all(stack)


async def test_invariant_21_a_level_whose_writes_were_lost_decides_again(
    processing: partial[Processing], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelog_processors.waiting.RESYNC", timedelta(seconds=1))
    async with processing() as stack:
        stack.start()
        await stack.folded(await stack.listed(web("shop", 1, replicas=1), version=1))
        async with stack.database.transaction() as connection:
            await connection.execute(delete(intents))
        assert (await stack.level("shop"))["status"] == "settling"
        [epoch] = [row["epoch"] for row in await stack.rows(leases) if row["partition"] == PARTITION]
        await Pruner(stack.database, stack.scope, stack.stream, epoch).prune()
        await until(
            lambda: stack.rows(intents), "a second round", accept=lambda found: [row["round"] for row in found] == [2]
        )


async def test_invariants_4_and_7_nothing_that_is_needed_is_pruned(stack: Processing) -> None:
    processor = stack.start()
    await stack.folded(await stack.listed(web("shop", 1, replicas=2), version=1))
    await write(stack, 2)
    for version, replicas in ((10, 3), (20, 1), (30, 2)):
        await stack.folded(await stack.tell(web("shop", version, replicas=replicas)))
        await prune_all(stack)
        await write(stack, version + 1)
    level = await stack.level("shop")
    assert (level["status"], level["round"], level["actual"]) == ("in_sync", 4, b'{"shop-0":"a","shop-1":"a"}')
    assert processor.calls.functions["webs/converge"] == 4
    assert len({row["key"] for row in await stack.rows(intents)}) == len(await stack.rows(intents))


async def test_what_the_log_has_outlived_goes(stack: Processing) -> None:
    stack.start()
    await stack.folded(await stack.listed(web("shop", 1, replicas=2), version=1))
    await write(stack, 2)
    await stack.folded(await stack.tell(web("shop", 3, replicas=1)))
    await write(stack, 4)
    applied = [("apply", "pods/default/shop-0")]  # what later applies to it are compared with
    assert await stack.intents() == [*applied, ("delete", "pods/default/shop-1")]
    assert len(await stack.rows(decisions)) == 1
    assert await stack.rows(tombstones) == []
    await stack.folded(await stack.tell(deleted(web("shop", 3), 5), deleted(pod("shop-0", 2), 6)))
    await prune_all(stack)
    left = {table.name: len(await stack.rows(table)) for table in (decisions, intents, tombstones, key_versions)}
    assert left == dict.fromkeys(left, 0)


async def test_rows_go_as_records_expire(stack: Processing) -> None:
    stack.start()
    there = pod("lonely", 2)
    await stack.folded(await stack.listed(there, version=2))
    last = await stack.tell(deleted(there, 3))
    await stack.folded(last)
    epochs = {row["partition"]: row["epoch"] for row in await stack.rows(leases)}
    pruner = Pruner(stack.database, stack.scope, stack.stream, epochs[PARTITION])
    assert len(await stack.rows(tombstones)) == 1
    await stack.expire(last)
    await pruner.prune()
    assert await stack.rows(tombstones) == []


async def test_pruning_that_takes_too_long_ends_nothing_else(
    nats_server: NatsServer, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "levelog_processors")
    impatient = Database.open(postgres_url, statement_time=timedelta(seconds=1))
    async with Processing(nats_server.url, postgres_url) as stack, await impatient as database:
        epochs = {row["partition"]: row["epoch"] for row in await stack.rows(leases)}
        async with stack.database.transaction() as connection:
            await connection.execute(text("LOCK TABLE levels IN ACCESS EXCLUSIVE MODE"))
            pruning = asyncio.create_task(Pruner(database, stack.scope, stack.stream, epochs[PARTITION]).run())
            await until(
                lambda: "what is older than the log stays for now" in caplog.text or pruning.done(),
                "the end of the statement",
            )
        assert not pruning.done()
        pruning.cancel()
        await asyncio.gather(pruning, return_exceptions=True)


async def test_who_prunes_waits_for_nobody_and_leaves_what_is_locked_for_the_next_time(postgres_url: str) -> None:
    """A processor that holds all partitions raises keys and then locks others, in no order of both."""
    keys = [("webs/sizes", "a"), ("webs/sizes", "b")]
    async with await Database.open(postgres_url) as database:

        async def prune() -> int:
            async with asyncio.timeout(30), database.transaction(durable=False) as connection:
                places, _ = await find_old(connection, SCOPE, key_versions, EVERYTHING, after=None)
                return await delete_old(connection, SCOPE, key_versions, EVERYTHING, places)

        async with database.transaction() as connection:
            await write_state(connection, SCOPE, Unwritten(keys=dict.fromkeys(keys, 1)))
        async with database.transaction() as deciding:
            await write_state(deciding, SCOPE, Unwritten(keys={keys[1]: 2}))
            await deciding.execute(select(1))  # with which it is sent
            assert await prune() == 1
            await write_state(deciding, SCOPE, Unwritten(keys={keys[0]: 2}))
        assert await prune() == 2


VIEW, CALLED = "webs/archive_deleted", "webs/archive_handled"
LEVELS: dict[str, dict[str, Any]] = {
    "handled": {"status": "in_sync"},
    "given-up": {"status": "failed"},
    "tried-again": {"status": "failed", "recheck_at": NOON},
    "under-way": {"status": "settling"},
    "woken": {"status": "in_sync"},
    "called": {"status": "in_sync"},
}
"""How the level of each deleted object stands."""


def operator() -> Operator:
    op = Operator("webs")

    @op.on.delete
    def archive(web: Web) -> None: ...

    return op


def ended(name: str) -> str:
    return f"webs.example.com:deleted/default/{name}:{name}"


async def fill(database: Database, scope: Scope) -> None:
    entries = {
        (CALLED, calls_key(name), call_entry(f"webs.example.com/default/{name}", ""), 0): Entry(
            CALLED, calls_key(name), 0, b"{}"
        )
        for name in LEVELS
    }
    told = Unwritten(
        objects={ended(name): stored_object(ended(name), uid=name) for name in LEVELS}, entries={**entries}
    )
    wake = PendingWake(view=VIEW, parent=ended("woken"), partition=0, cause=1, generation=1, due_at=None)
    rows = [
        LevelRow(view=VIEW, parent=ended(name), partition=0, parent_uid=name, evaluated_at=NOON, **given)
        for name, given in LEVELS.items()
    ]
    call = intent(
        "archive.effects/default/called",
        verb="call",
        parent=ended("called"),
        parent_uid="called",
        view=VIEW,
        state="claimed",
        scope=scope.number,
    )
    async with database.transaction() as connection:
        await write_state(connection, scope, told)
        await write_wakes_of(connection, scope, {(VIEW, wake.parent): wake}, {})
        await connection.execute(insert(levels), rows_of(scope, rows))
        await connection.execute(insert(intents), [call])


async def test_deletions_that_are_handled_or_given_up_are_forgotten_with_their_levels_and_calls(
    database_url: str,
) -> None:
    program = Program([operator()])
    async with await Database.open(database_url) as database:
        scope = await scope_of(database, partitions=1, fingerprint=program.fingerprint)
        await fill(database, scope)
        engine = Engine(SqlTables(database, scope), program, patience=None)
        await engine.load(await processor(database, scope, "test").tend())
        assert await engine.forget(before=0) == 2
        left = [name for name in LEVELS if name not in ("handled", "given-up")]

        async def names(table: Table, column: str) -> set[str]:
            async with database.reading() as connection:
                return set(await connection.scalars(select(table.c[column])))

        parents = {ended(name) for name in left}
        assert engine.state.objects.keys() == await names(objects, "object") == parents
        assert {parent for _, parent in engine.state.levels} == await names(levels, "parent") == parents
        calls = {call_entry(f"webs.example.com/default/{name}", "") for name in left}
        held = {name for name, entries in engine.state.buckets.by_object.items() if entries}
        assert held == await names(index_entries, "object") == calls
        assert await engine.forget(before=0) == 0
        await engine.close()
