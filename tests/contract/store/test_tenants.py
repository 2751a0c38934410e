"""Who is first where one namespace has asked for much: each in its turn."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert

from levelog_store.actuate.claims import claim
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import PendingWake
from levelog_store.decide.inputreads import NEWEST, read_wakes
from levelog_store.rows import in_turn
from levelog_store.tables import wakeups
from rigs.intents import decide, intent
from rigs.leasing import SCOPE

VIEW = "webs/pods"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def named(namespace: str, count: int) -> list[str]:
    return [f"webs.example.com/{namespace}/{number:04}" for number in range(count)]


async def wake(database: Database, parents: Sequence[str], *, is_timed: bool = False) -> None:
    """One after the other."""
    rows = [
        {
            "scope": 1,
            "view": VIEW,
            "parent": parent,
            "partition": 0,
            "cause": cause,
            "generation": 1,
            "due_at": NOON + timedelta(seconds=cause) if is_timed else None,
        }
        for cause, parent in enumerate(parents, 1)
    ]
    async with database.transaction() as connection:
        await connection.execute(insert(wakeups), rows)


async def next_wakes(database: Database, limit: int) -> list[PendingWake]:
    async with database.reading() as connection:
        return (await read_wakes(connection, SCOPE, [0], [VIEW], limit))[0]


@pytest.mark.parametrize("is_timed", [False, True])
async def test_a_level_that_a_quiet_namespace_wakes_after_2000_of_another_is_decided_among_the_first(
    database: Database, *, is_timed: bool
) -> None:
    noisy, quiet, cluster = named("noisy", NEWEST), named("quiet", 2), named("_", 3)
    await wake(database, [*noisy, *quiet, *cluster], is_timed=is_timed)
    found = [each.parent for each in await next_wakes(database, 100)]
    assert found[:6] == [noisy[0], quiet[0], cluster[0], noisy[1], quiet[1], cluster[1]]
    assert found[6:] == [noisy[2], cluster[2], *noisy[3:95]]


async def test_levels_of_one_namespace_are_decided_in_the_order_of_their_causes(database: Database) -> None:
    parents = named("noisy", 300)[::-1]
    await wake(database, parents)
    assert [each.parent for each in await next_wakes(database, 200)] == parents[:200]


@pytest.mark.parametrize("is_timed", [False, True])
async def test_a_write_for_a_quiet_namespace_after_1000_of_another_is_among_the_first_claims(
    database: Database, *, is_timed: bool
) -> None:
    due_at = NOON if is_timed else None
    rows = [
        intent(f"pods/noisy/{number}", parent=parent, decided_at=NOON + timedelta(seconds=number), due_at=due_at)
        for number, parent in enumerate([*named("noisy", 1000), *named("quiet", 2), *named("_", 1)])
    ]
    await decide(database, *rows)
    claimed: list[list[str]] = []
    for _ in range(2):
        async with database.transaction() as connection:
            found = await claim(connection, SCOPE, "one", limit=10, lease=timedelta(seconds=30))
        claimed.append([each.parent for each in found])
    noisy, (one, two), (cluster,) = named("noisy", 17), named("quiet", 2), named("_", 1)
    assert claimed == [[noisy[0], one, cluster, noisy[1], two, *noisy[2:7]], noisy[7:]]


async def test_rows_of_namespaces_take_turns_in_the_order_that_they_have() -> None:
    rows = ["k/a/1", "k/a/2", "k/a/3", "k/b/1", "k/_/1", "k/b/2"]
    assert in_turn(rows, str) == ["k/a/1", "k/b/1", "k/_/1", "k/a/2", "k/b/2", "k/a/3"]
