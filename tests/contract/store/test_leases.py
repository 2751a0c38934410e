import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy import delete, select, update

from levelog_base.errors import CommitsLost, IdentityMismatch, LeaseLost
from levelog_processors.tables import SqlTables
from levelog_store.connect.database import Database
from levelog_store.owners.leases import HURRY, Leases, guard
from levelog_store.owners.scopes import reset_scope
from levelog_store.rows import Scope
from levelog_store.tables import checkpoints, leases, processors
from rigs.leasing import PARTITIONS, can_commit, expire, fold, owned, processor, scope_of, sequences


async def test_a_processor_alone_holds_every_partition(database: Database, scope: Scope) -> None:
    alone = processor(database, scope, "a")
    epochs = await alone.tend()
    assert sorted(epochs) == list(range(PARTITIONS))
    assert await alone.tend() == epochs == await owned(database, scope, "a")


async def test_a_newcomer_gets_its_share_and_nothing_else_moves(database: Database, scope: Scope) -> None:
    first, second, third = (processor(database, scope, owner) for owner in "zyx")
    before = await first.tend()
    assert await second.tend() == {}
    kept = await first.tend()
    assert len(kept) == PARTITIONS // 2
    assert kept.items() <= before.items()
    moved = await second.tend()
    assert sorted([*kept, *moved]) == list(range(PARTITIONS))
    assert all(epoch > before[partition] for partition, epoch in moved.items())
    await third.tend()
    await first.tend()
    await second.tend()
    await third.tend()
    held = [await owned(database, scope, each) for each in "zyx"]
    assert [len(epochs) for epochs in held] == [3, 3, 2]
    assert held[0].items() <= kept.items()
    assert held[1].items() <= moved.items()


async def test_processors_beyond_the_partitions_stand_by(database: Database) -> None:
    scope = await scope_of(database, partitions=2)
    all_of_them = [processor(database, scope, str(n)) for n in range(4)]
    for each in all_of_them:
        await each.tend()
    held = [await each.tend() for each in all_of_them]
    assert sorted(len(epochs) for epochs in held) == [0, 0, 1, 1]


async def test_what_is_released_is_taken_at_once(database: Database, scope: Scope) -> None:
    first, second = processor(database, scope, "a"), processor(database, scope, "b")
    before = await first.tend()
    await first.release()
    assert await owned(database, scope, "a") == {}
    after = await second.tend()
    assert sorted(after) == list(range(PARTITIONS))
    assert all(after[partition] > before[partition] for partition in before)


async def test_a_process_that_is_certain_to_be_alone_ends_the_leases_of_its_predecessor(
    database: Database, scope: Scope
) -> None:
    killed, alone = processor(database, scope, "killed"), processor(database, scope, "alone")
    before = await killed.tend()
    await alone.end_others()
    assert sorted(await alone.tend()) == list(range(PARTITIONS))
    assert not await can_commit(database, scope, before)


async def test_leases_that_ended_but_were_not_taken_are_renewed_under_their_epoch(
    database: Database, scope: Scope
) -> None:
    slow = processor(database, scope, "slow")
    before = await slow.tend()
    await expire(database, "slow")
    assert await can_commit(database, scope, before)
    assert await slow.tend() == before
    assert await processor(database, scope, "other").tend() == {}


async def until_all_are_taken(other: Leases) -> None:
    async with asyncio.timeout(60):
        while len(await other.tend()) < PARTITIONS:
            pass  # a millisecond or so, then what the first one holds has ended


async def test_leases_end_by_the_databases_clock(database: Database, scope: Scope) -> None:
    await Leases(database, scope, owner="gone", duration=timedelta(milliseconds=1)).tend()
    other = processor(database, scope, "other")
    await until_all_are_taken(other)


@pytest.mark.parametrize("ahead", [timedelta(hours=2), timedelta(days=30)], ids=["hours", "thirty days"])
async def test_a_processor_that_died_under_a_clock_that_was_ahead_is_followed_after_one_lease(
    database: Database, scope: Scope, ahead: timedelta
) -> None:
    await processor(database, scope, "dead").tend()
    async with database.transaction() as connection:
        for table in (leases, processors):
            await connection.execute(update(table).values(expires_at=datetime.now(UTC) + ahead))
    await until_all_are_taken(Leases(database, scope, owner="other", duration=timedelta(milliseconds=1)))


async def test_the_leases_of_the_living_are_shortened_by_others_and_kept(database: Database, scope: Scope) -> None:
    first, second = processor(database, scope, "a"), processor(database, scope, "b")
    before = await first.tend()
    async with database.transaction() as connection:
        await connection.execute(update(leases).values(expires_at=datetime.now(UTC) + timedelta(days=30)))
    await second.tend()
    assert await owned(database, scope, "a") == before
    async with database.reading() as connection:
        ends = (await connection.execute(select(leases.c.expires_at).where(leases.c.owner == "a"))).scalars().all()
    assert max(ends) < datetime.now(UTC) + timedelta(hours=2)


async def test_a_processor_hurries_only_while_others_hold_part_of_its_share(database: Database, scope: Scope) -> None:
    first, second = processor(database, scope, "a"), processor(database, scope, "b")
    await first.tend()
    assert first.interval == timedelta(minutes=20)
    await second.tend()
    assert second.interval == HURRY
    await first.tend()
    await second.tend()
    assert second.interval == timedelta(minutes=20)


async def test_processors_long_gone_are_forgotten(database: Database, scope: Scope) -> None:
    await processor(database, scope, "gone").tend()
    await expire(database, "gone")
    await processor(database, scope, "here").tend()
    async with database.reading() as connection:
        assert (await connection.execute(select(processors.c.owner))).scalars().all() == ["here"]


async def test_applications_lease_apart(database: Database) -> None:
    one, other = await scope_of(database), await scope_of(database, application="other")
    for scope in (one, other):
        assert len(await processor(database, scope, "same name").tend()) == PARTITIONS


async def test_a_guard_without_partitions_is_a_defect(database: Database, scope: Scope) -> None:
    with pytest.raises(ValueError, match="partitions"):
        async with database.transaction() as connection:
            await guard(connection, scope, {})


async def test_invariant_10_a_processor_that_lost_its_lease_cannot_commit(database: Database, scope: Scope) -> None:
    old, new = processor(database, scope, "old"), processor(database, scope, "new")
    passed = await old.tend()
    await fold(database, scope, passed, 5)
    await expire(database, "old")
    current = await new.tend()
    with pytest.raises(LeaseLost, match="partition 0 for webs under epoch 1"):
        await fold(database, scope, passed, 6)
    assert set((await sequences(database, scope)).values()) == {5}
    await fold(database, scope, current, 7)
    assert set((await sequences(database, scope)).values()) == {7}


async def test_invariant_10_one_lost_lease_among_several_refuses_all(database: Database, scope: Scope) -> None:
    old, new = processor(database, scope, "old"), processor(database, scope, "new")
    passed = await old.tend()
    await new.tend()
    kept = await old.tend()
    await new.tend()
    assert await can_commit(database, scope, kept)
    with pytest.raises(LeaseLost):
        await fold(database, scope, passed, 6)
    assert set((await sequences(database, scope)).values()) == {0}


async def test_invariant_10_a_lease_lost_and_taken_again_does_not_save_older_work(
    database: Database, scope: Scope
) -> None:
    owner, other = processor(database, scope, "owner"), processor(database, scope, "other")
    begun_under = await owner.tend()
    await expire(database, "owner")
    await other.tend()
    await other.release()
    again = await owner.tend()
    assert again.keys() == begun_under.keys()
    assert not await can_commit(database, scope, begun_under)
    assert await can_commit(database, scope, again)


async def test_invariant_10_older_code_cannot_commit_nor_lease(database: Database) -> None:
    older = await scope_of(database)
    running = processor(database, older, "running")
    epochs = await running.tend()
    newer = await scope_of(database, fingerprint="code-2")
    with pytest.raises(LeaseLost, match="promoted"):
        await fold(database, older, epochs, 6)
    with pytest.raises(LeaseLost, match="promoted"):
        await running.tend()
    taken = await processor(database, newer, "new").tend()
    assert len(taken) == PARTITIONS
    assert not await can_commit(database, older, taken)
    await running.release()
    assert await can_commit(database, newer, taken)


async def test_invariant_10_nobody_commits_work_from_before_a_reset(database: Database, scope: Scope) -> None:
    running = processor(database, scope, "running")
    epochs = await running.tend()
    again = await reset_scope(database, scope, stream_created="stream-2", reason="made anew")
    with pytest.raises(LeaseLost):
        await fold(database, scope, epochs, 6)
    with pytest.raises(IdentityMismatch, match="started over"):
        await running.tend()
    taken = await processor(database, again, "new").tend()
    assert await can_commit(database, again, taken)


async def test_what_was_folded_after_commits_that_the_database_lost_is_refused(
    database: Database, scope: Scope
) -> None:
    epochs = await processor(database, scope, "a").tend()
    await fold(database, scope, epochs, 20)
    memory = dict.fromkeys(epochs, 25)  # the commits from 21 to 25 are gone
    with pytest.raises(CommitsLost, match=r"up to 25 by \d+ commits, the database has it up to 20"):
        async with database.transaction() as connection:
            await guard(connection, scope, epochs, folded_to=memory)
    async with database.transaction() as connection:
        await guard(connection, scope, epochs, folded_to=dict.fromkeys(epochs, 20))


async def test_a_checkpoint_that_is_gone_is_named(database: Database, scope: Scope) -> None:
    epochs = await processor(database, scope, "a").tend()
    async with database.transaction() as connection:
        await connection.execute(delete(checkpoints).where(checkpoints.c.partition == 2))
    with pytest.raises(IdentityMismatch, match="no checkpoint of partition 2"):
        async with database.transaction() as connection:
            await guard(connection, scope, epochs)
    tables = SqlTables(database, scope)
    with pytest.raises(IdentityMismatch, match="no checkpoint of partition 2"):
        await tables.load(epochs, ())


async def test_invariant_10_an_epoch_that_a_failover_gave_to_another_owner_is_not_mistaken_for_ones_own(
    database: Database,
    scope: Scope,
) -> None:
    """The server that took over had lost the lease, so that the next owner got the same epoch."""
    epochs = await processor(database, scope, "a").tend()
    mine = replace(scope, owner="a")
    assert await can_commit(database, mine, epochs)
    async with database.transaction() as connection:
        await connection.execute(update(leases).values(owner="b"))
    assert not await can_commit(database, mine, epochs)
