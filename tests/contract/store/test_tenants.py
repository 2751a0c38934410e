"""Who is first where one namespace has asked for much: each in its turn."""

from datetime import timedelta

import pytest

from levelog_store.actuate.claims import claim
from levelog_store.connect.database import Database
from levelog_store.rows import in_turn
from rigs.intents import decide, intent
from rigs.leasing import SCOPE
from rigs.webs import NOON


def named(namespace: str, count: int) -> list[str]:
    return [f"webs.example.com/{namespace}/{number:04}" for number in range(count)]


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
