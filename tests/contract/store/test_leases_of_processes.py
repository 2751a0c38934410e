"""Leases between connections and processes that run at once, which only PostgreSQL has."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from sqlalchemy import select, text, update

from levelog_base.errors import LeaseLost, Unavailable
from levelog_store.connect.database import Database
from levelog_store.connect.engines import IDLE_SECONDS
from levelog_store.owners.leases import guard
from levelog_store.rows import Scope
from levelog_store.tables import checkpoints, leases
from rigs.leasing import PARTITIONS, can_commit, expire, fold, processor, scope_of, sequences
from rigs.locks import until_one_waits
from rigs.processes import Forked, Process
from rigs.run.examples import short_or_whole
from rigs.waiting import until

TESTS = Path(__file__).parents[2]


@pytest.fixture
async def scope(shared: Database) -> Scope:
    return await scope_of(shared)


async def test_invariant_10_a_takeover_leaves_a_partition_that_is_being_committed(
    shared: Database, scope: Scope
) -> None:
    old, new = processor(shared, scope, "old"), processor(shared, scope, "new")
    epochs = await old.tend()
    async with shared.transaction() as connection:
        await guard(connection, scope, {3: epochs[3]})
        await connection.execute(update(checkpoints).where(checkpoints.c.partition == 3).values(sequence=5))
        await expire(shared, "old")
        taken = await new.tend()
        assert sorted(taken) == [0, 1, 2, 4, 5, 6, 7]
    assert (await sequences(shared, scope))[3] == 5
    assert sorted(await new.tend()) == list(range(PARTITIONS))
    assert not await can_commit(shared, scope, {3: epochs[3]})


async def test_invariant_10_a_guard_waits_for_a_takeover_and_then_refuses(shared: Database, scope: Scope) -> None:
    epochs = await processor(shared, scope, "old").tend()
    async with shared.transaction() as connection:
        row = leases.c.partition == 3
        await connection.execute(select(leases).where(row).with_for_update())
        await connection.execute(update(leases).where(row).values(owner="new", epoch=leases.c.epoch + 1))
        work = asyncio.create_task(fold(shared, scope, {3: epochs[3]}, 6))
        await until_one_waits(shared, "a guard that waits")
        assert not work.done()
    with pytest.raises(LeaseLost):
        await work
    assert (await sequences(shared, scope))[3] == 0


async def test_invariant_10_new_code_waits_for_what_older_code_commits_and_for_nothing_later(shared: Database) -> None:
    older = await scope_of(shared)
    epochs = await processor(shared, older, "old").tend()
    async with shared.transaction() as connection:
        await guard(connection, older, {3: epochs[3]})
        promotion = asyncio.create_task(scope_of(shared, fingerprint="code-2"))
        await until_one_waits(shared, "a promotion that waits")
        assert not await can_commit(shared, older, {3: epochs[3]})
        assert not await can_commit(shared, older, {4: epochs[4]})
        await connection.execute(update(checkpoints).where(checkpoints.c.partition == 3).values(sequence=5))
        assert not promotion.done()
    newer = await promotion
    assert (await sequences(shared, newer))[3] == 5
    assert sorted(await processor(shared, newer, "new").tend()) == list(range(PARTITIONS))


async def test_giving_up_a_partition_waits_for_what_is_being_committed(shared: Database, scope: Scope) -> None:
    first, second = processor(shared, scope, "first"), processor(shared, scope, "second")
    epochs = await first.tend()
    await second.tend()
    async with shared.transaction() as connection:
        await guard(connection, scope, {7: epochs[7]})
        tending = asyncio.create_task(first.tend())
        await until_one_waits(shared, "a release that waits")
        await connection.execute(update(checkpoints).where(checkpoints.c.partition == 7).values(sequence=5))
    assert 7 not in await tending
    assert (await sequences(shared, scope))[7] == 5


async def test_work_under_one_lease_and_its_renewal_do_not_wait_for_each_other(shared: Database, scope: Scope) -> None:
    owner = processor(shared, scope, "owner")
    epochs = await owner.tend()
    async with asyncio.timeout(60), shared.transaction() as folding:
        await guard(folding, scope, epochs)
        async with shared.transaction() as deciding:
            await guard(deciding, scope, epochs)
            await folding.execute(update(checkpoints).values(sequence=5))
            assert await owner.tend() == epochs
    assert await owner.tend() == epochs


async def test_guards_over_many_partitions_never_deadlock_with_tending(shared: Database, scope: Scope) -> None:
    owner = processor(shared, scope, "owner")
    epochs = await owner.tend()

    async def work(order: int) -> None:
        for n in range(25):
            await fold(shared, scope, dict(sorted(epochs.items(), reverse=bool(order % 2))), n)

    async def tend() -> None:
        for _ in range(25):
            await owner.tend()

    await asyncio.gather(*(work(n) for n in range(4)), *(tend() for _ in range(2)))
    assert await owner.tend() == epochs


class Fleet:
    """Processes that lease and commit, each with a log."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self._url = url
        self._folder = folder
        self._stack = stack
        self.processes: dict[str, Process] = {}

    def start(self, owner: str) -> Process:
        argv = [sys.executable, "-m", "rigs.leaser", self._url, owner, short_or_whole("0.02", "0")]
        process = Forked(argv, self._folder / f"{owner}.log", folder=TESTS)
        self._stack.callback(process.kill)
        self.processes[owner] = process
        return process

    def lines(self, owner: str) -> list[str]:
        return self.processes[owner].log.read_text().splitlines()


@pytest.fixture
def fleet(shared_url: str, tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(shared_url, tmp_path, stack)


async def shares(database: Database) -> dict[str, int]:
    """How many partitions each process holds."""
    async with database.reading() as connection:
        names = (await connection.execute(select(leases.c.owner))).scalars().all()
    return {name: names.count(name) for name in names}


async def epochs_now(database: Database) -> dict[int, int]:
    async with database.reading() as connection:
        rows = await connection.execute(select(leases.c.partition, leases.c.epoch))
        return {row.partition: row.epoch for row in rows}


async def test_invariant_10_processes_killed_and_paused_never_commit_under_a_passed_epoch(
    shared: Database, scope: Scope, fleet: Fleet
) -> None:

    async def are_shared(*owners: str) -> bool:
        for owner in owners:
            fleet.processes[owner].check()
        held = await shares(shared)
        return held.keys() == set(owners) and max(held.values()) - min(held.values()) <= 1

    async def has_each_partition_moved(since: dict[int, int]) -> bool:
        committed = await sequences(shared, scope)
        return all(committed[partition] >= epoch for partition, epoch in since.items())

    async def until_shared(*owners: str) -> None:
        # a process that is paused inside a transaction keeps its partition until the server ends the session
        await until(lambda: are_shared(*owners), f"fair shares of {owners}", seconds=IDLE_SECONDS + 90)
        now = await epochs_now(shared)
        await until(lambda: has_each_partition_moved(now), f"commits of {owners}")

    for owner in ("a", "b", "c"):
        fleet.start(owner)
    await until_shared("a", "b", "c")
    os.kill(fleet.processes["a"].pid, signal.SIGSTOP)
    fleet.processes["b"].kill()
    await until_shared("c")
    os.kill(fleet.processes["a"].pid, signal.SIGCONT)
    fleet.start("d")
    await until_shared("a", "c", "d")
    assert [line for owner in fleet.processes for line in fleet.lines(owner) if line.startswith("REVERTED")] == []


async def until_without_sessions(shared: Database, killed: Database) -> None:
    async def is_away() -> bool:
        async with shared.reading() as connection:
            query = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :name")
            return not await connection.scalar(query, {"name": f"levelog {killed.token}"})

    await until(is_away, "the end of its sessions")


async def test_what_a_killed_processor_held_is_freed_at_the_second_look(shared: Database, shared_url: str) -> None:
    scope, elsewhere = await scope_of(shared), await scope_of(shared, application="elsewhere")
    other, stranger = processor(shared, scope, "other"), processor(shared, elsewhere, "stranger")
    async with await Database.open(shared_url) as killed:
        epochs = await processor(killed, scope, f"killed-{killed.token}").tend()
        assert [await other.free_gone() for _ in range(3)] == [False] * 3, "it is there"
        assert not await stranger.free_gone()
        assert await other.tend() == {}

    await until_without_sessions(shared, killed)
    assert not await other.free_gone(), "a failover ends all sessions for a moment"
    assert await other.tend() == {}
    assert [await stranger.free_gone() for _ in range(2)] == [False] * 2, "it is of another application"
    assert await other.free_gone()
    assert not await can_commit(shared, scope, epochs)
    assert sorted(await other.tend()) == list(range(PARTITIONS))
    assert not await other.free_gone()


async def test_a_processor_whose_sessions_cannot_be_seen_keeps_its_leases(shared: Database, scope: Scope) -> None:
    hidden, other = processor(shared, scope, "hidden"), processor(shared, scope, "other")
    epochs = await hidden.tend()
    assert [await other.free_gone() for _ in range(3)] == [False] * 3
    assert await other.tend() == {}
    assert await can_commit(shared, scope, epochs)


async def cut_off_from(shared: Database, theirs: Database) -> None:
    async with shared.transaction() as connection:
        query = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = :name")
        await connection.execute(query, {"name": f"levelog {theirs.token}"})
    await until_without_sessions(shared, theirs)


async def test_invariant_10_who_was_taken_for_gone_and_is_not_cannot_commit_and_gets_its_share_again(
    shared: Database, scope: Scope, shared_url: str
) -> None:
    async with await Database.open(shared_url) as theirs:
        cut_off, other = processor(theirs, scope, f"cut-off-{theirs.token}"), processor(shared, scope, "other")
        epochs = await cut_off.tend()

        async def is_back() -> bool:
            with suppress(Unavailable):  # its old connections fail first
                await cut_off.tend()
                return True
            return False

        for _ in range(2):
            await until(is_back, "new connections")
            assert not await other.free_gone(), "it was there between two looks without it"
            await cut_off_from(shared, theirs)
            assert not await other.free_gone()
        assert await other.free_gone()
        assert sorted(await other.tend()) == list(range(PARTITIONS))
        for _ in range(2):  # its old connections fail first
            with suppress(Unavailable):
                assert not await can_commit(theirs, scope, epochs)
        await until(is_back, "new connections")
        await other.tend()
        assert len(await cut_off.tend()) == PARTITIONS // 2
