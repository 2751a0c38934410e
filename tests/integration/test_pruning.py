"""Tables hold what is needed now and what the log still tells of; the rest goes."""

import asyncio
import logging
from datetime import timedelta

import pytest
from sqlalchemy import delete, select, text

from levelog_processors.upkeep import PARTITION, Pruner
from levelog_store.connect.database import Database
from levelog_store.fold.statewrites import Unwritten, write_state
from levelog_store.owners.upkeep import PRUNED, delete_old, find_old
from levelog_store.tables import decisions, intents, key_versions, leases, tombstones
from rigs.leasing import SCOPE
from rigs.nats import NatsServer
from rigs.processing import Processing
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
    nats_server: NatsServer, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelog_processors.waiting.RESYNC", timedelta(seconds=1))
    async with Processing(nats_server.url, database_url) as stack:
        stack.start()
        await stack.folded(await stack.listed(web("shop", 1, replicas=1), version=1))
        async with stack.database.transaction() as connection:
            await connection.execute(delete(intents))
        assert (await stack.level("shop"))["status"] == "settling"
        [epoch] = [row["epoch"] for row in await stack.rows(leases) if row["partition"] == PARTITION]
        await Pruner(stack.database, stack.scope, stack.stream, epoch).prune()

        async def is_written() -> bool:
            return [row["round"] for row in await stack.rows(intents)] == [2]

        await until(is_written, "a second round")


async def test_invariants_4_and_7_nothing_that_is_needed_is_pruned(nats_server: NatsServer, database_url: str) -> None:
    async with Processing(nats_server.url, database_url) as stack:
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


async def test_what_the_log_has_outlived_goes(nats_server: NatsServer, database_url: str) -> None:
    async with Processing(nats_server.url, database_url) as stack:
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


async def test_rows_go_as_records_expire(nats_server: NatsServer, database_url: str) -> None:
    async with Processing(nats_server.url, database_url) as stack:
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

            async def is_told() -> bool:
                return "what is older than the log stays for now" in caplog.text or pruning.done()

            await until(is_told, "the end of the statement")
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
