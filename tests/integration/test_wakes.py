"""No lost wake: whichever of a fold and a decision comes first, the other one sees it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from levelog_processors.decide.transaction import Carried
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Decided, PendingWake
from levelog_store.decide.decisionwrites import consume_wakes, write_decisions
from levelog_store.decide.inputreads import read_wakes
from levelog_store.fold.changes import Changes, Wake
from levelog_store.fold.changewrites import tell_readers, write_changes
from levelog_store.fold.levelwrites import ASKED_FOR, retry_levels, write_wakes
from levelog_store.rows import LevelRow, StoredObject, ViewParent, levels_place
from levelog_store.tables import wakeups
from rigs.intents import decide, intent
from rigs.leasing import SCOPE
from rigs.locks import until_one_waits
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.webs import NOON, pod, web

VIEW, PARENT = "webs/pods", "webs.example.com/default/shop"
KEY = ("webs/images", '"uid-shop"')


def decided(*, version: int) -> Decided:
    """A decision that read the key in a version; -1: when there was nothing under it."""
    return Decided(
        wake=PendingWake(view=VIEW, parent=PARENT, partition=0, cause=1, generation=1, due_at=None),
        level=LevelRow(
            view=VIEW, parent=PARENT, partition=0, parent_uid="uid-shop", status="in_sync", evaluated_at=NOON
        ),
        versions={KEY: version},
        dependencies_added={KEY},
        is_evaluated=True,
    )


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    async with await Database.open(postgres_url) as opened:
        yield opened


async def woken(database: Database) -> list[str]:
    async with database.reading() as connection:
        return [row.parent for row in await connection.execute(wakeups.select())]


@pytest.mark.parametrize("version", [-1, 5])
async def test_invariant_5_a_decision_that_read_before_a_fold_committed_is_given_up(
    database: Database, version: int
) -> None:
    async with database.transaction() as connection:
        await write_changes(connection, SCOPE, Changes(keys={KEY: 5 if version == 5 else 9}))
    async with database.transaction() as connection:
        await write_changes(connection, SCOPE, Changes(keys={KEY: 9}))
    async with database.transaction() as connection:
        assert (await write_decisions(connection, SCOPE, [decided(version=version)], "code")).held == []
    async with database.transaction() as connection:
        assert len((await write_decisions(connection, SCOPE, [decided(version=9)], "code")).held) == 1


@pytest.mark.parametrize(
    ("state", "is_echo"),
    [
        ({"state": "claimed", "owner": "a", "attempts": 1}, True),
        ({"state": "written", "owner": "a", "outcome": "written"}, True),  # whose receipt is not folded
        ({"state": "pending"}, False),
        ({"state": "claimed"}, False),  # given back, to be tried again later
        ({"state": "written", "owner": "a", "outcome": "written", "is_folded": True}, False),
    ],
)
async def test_a_change_of_the_target_of_a_write_under_way_is_known_as_its_echo(
    database: Database, state: dict[str, Any], is_echo: bool
) -> None:
    changed = StoredObject(
        object=PARENT,
        partition=0,
        resource="webs.example.com",
        namespace="default",
        name="shop",
        uid="uid-shop",
        version=8,
        sequence=8,
        is_deleting=False,
        body=b"{}",
    )
    await decide(database, intent(PARENT, view=VIEW, **state))
    async with database.transaction() as connection:
        wakes = await write_changes(connection, SCOPE, Changes(objects={PARENT: changed}))
    assert {level: (wake.causes, wake.is_echo) for level, wake in wakes.items()} == {(VIEW, PARENT): ((8,), is_echo)}
    also = Changes(objects={PARENT: replace(changed, version=9, sequence=9)})
    also.wake((VIEW, PARENT), Wake(0, (10,)))  # a receipt, or a change of something else that it reads
    async with database.transaction() as connection:
        wakes = await write_changes(connection, SCOPE, also)
    assert not any(wake.is_echo for wake in wakes.values())


@pytest.mark.parametrize("version", [-1, 5])
async def test_invariant_5_a_fold_that_meets_an_uncommitted_decision_waits_and_wakes_it(
    database: Database, version: int
) -> None:
    folding = asyncio.Event()
    async with database.transaction() as connection:
        await write_changes(connection, SCOPE, Changes(keys={KEY: 5} if version == 5 else {}))

    async def fold() -> None:
        async with database.transaction() as connection:
            folding.set()
            await write_changes(connection, SCOPE, Changes(keys={KEY: 7}))

    async with database.transaction() as deciding:
        assert len((await write_decisions(deciding, SCOPE, [decided(version=version)], "code")).held) == 1
        task = asyncio.create_task(fold())
        await folding.wait()
        await until_one_waits(database)
        assert not task.done()
    await task
    assert await woken(database) == [PARENT]


async def test_invariant_5_a_decision_that_meets_an_uncommitted_fold_waits_and_is_given_up(database: Database) -> None:
    deciding = asyncio.Event()

    async def decide() -> int:
        async with database.transaction() as connection:
            deciding.set()
            return len((await write_decisions(connection, SCOPE, [decided(version=-1)], "code")).held)

    async with database.transaction() as folding:
        await write_changes(folding, SCOPE, Changes(keys={KEY: 7}))
        task = asyncio.create_task(decide())
        await deciding.wait()
        await until_one_waits(database)
        assert not task.done()
    assert await task == 0


async def test_two_folds_that_raise_the_same_keys_wait_for_each_other_in_one_order(database: Database) -> None:
    first, second = KEY, ("webs/images", '"uid-spare"')
    raising = asyncio.Event()

    async def fold() -> None:
        async with database.transaction() as connection:
            raising.set()
            await write_changes(connection, SCOPE, Changes(keys={second: 8, first: 8}))

    async with database.transaction() as folding:
        await write_changes(folding, SCOPE, Changes(keys={first: 7}))
        task = asyncio.create_task(fold())
        await raising.wait()
        await until_one_waits(database)
        await write_changes(folding, SCOPE, Changes(keys={second: 7}))
    await task


LEVELS = levels_place("webs", "webs.example.com/default/other")


async def test_invariant_5_a_decision_that_looked_up_a_level_waits_for_one_on_it_and_is_given_up(
    database: Database,
) -> None:
    deciding = asyncio.Event()
    reader = replace(decided(version=-1), versions={LEVELS: -1}, dependencies_added={LEVELS})

    async def decide() -> int:
        async with database.transaction() as connection:
            deciding.set()
            return len((await write_decisions(connection, SCOPE, [reader], "code")).held)

    async with database.transaction() as other:
        await tell_readers(other, SCOPE, {LEVELS: (7,)}, {})
        task = asyncio.create_task(decide())
        await deciding.wait()
        await until_one_waits(database)
        assert not task.done()
    assert await task == 0


async def test_invariant_5_a_decision_on_a_level_waits_for_who_looked_it_up_and_wakes_them(database: Database) -> None:
    telling = asyncio.Event()
    reader = replace(decided(version=-1), versions={LEVELS: -1}, dependencies_added={LEVELS})

    wakes: dict[ViewParent, Wake] = {}

    async def tell() -> None:
        async with database.transaction() as connection:
            telling.set()
            await tell_readers(connection, SCOPE, {LEVELS: (7,)}, wakes)

    async with database.transaction() as deciding:
        assert len((await write_decisions(deciding, SCOPE, [reader], "code")).held) == 1
        task = asyncio.create_task(tell())
        await telling.wait()
        await until_one_waits(database)
        assert not task.done()
    await task
    assert wakes == {(VIEW, PARENT): Wake(0, (7,))}


async def test_invariant_5_the_appearance_of_an_absent_key_wakes_who_looked_for_it(
    nats_server: NatsServer, postgres_url: str
) -> None:
    async with Processing(nats_server.url, postgres_url) as stack:
        last = await stack.listed(web("shop", 1, replicas=0), version=1)
        stack.start()
        await stack.folded(last)
        await stack.folded(await stack.tell(pod("stranger", 2, owner="uid-shop")))
        assert await stack.intents("pending") == [("delete", "pods/default/stranger")]


async def test_invariant_5_what_is_to_be_tried_again_while_a_pass_begins_is_not_answered_by_it(
    database: Database,
) -> None:
    """The pass has read another wakeup, and calls no reconcile function for its time."""
    level = (VIEW, PARENT)
    async with database.transaction() as connection:
        await write_decisions(connection, SCOPE, [decided(version=-1)], "code")
        await write_wakes(connection, SCOPE, {level: Wake(0, (7,))})
    async with database.transaction() as connection:
        rows, _ = await read_wakes(connection, SCOPE, [0], [VIEW], 10, of=[level])
        await retry_levels(database, SCOPE, [level])
        [wake] = await Carried({level: Wake(0, (8,))}).added_to(connection, SCOPE, rows, [VIEW])
        await consume_wakes(connection, SCOPE, [replace(decided(version=-1), wake=wake)])
    assert (wake.causes, wake.due_at) == ("7,8", None)
    async with database.reading() as connection:
        [left] = (await connection.execute(wakeups.select())).all()
    assert (left.causes, left.due_at) == ("7,8", ASKED_FOR)


async def test_a_wake_that_a_fold_carries_has_its_turn_before_those_of_another_namespace(database: Database) -> None:
    *noisy, quiet = [f"webs.example.com/{name}" for name in ("noisy/a", "noisy/b", "noisy/c", "quiet/a")]
    async with database.transaction() as connection:
        waiting = {(VIEW, parent): Wake(0, (cause,)) for cause, parent in enumerate(noisy, 1)}
        await write_wakes(connection, SCOPE, waiting)
        rows, _ = await read_wakes(connection, SCOPE, [0], [VIEW], 10)
        found = await Carried({(VIEW, quiet): Wake(0, (9,))}).added_to(connection, SCOPE, rows, [VIEW])
    assert [each.parent for each in found] == [noisy[0], quiet, *noisy[1:]]
