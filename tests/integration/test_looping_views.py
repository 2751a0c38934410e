"""A view that loops for some objects costs these alone: whatever else is due is decided before them."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import select

from levelog import Index, Level, Operator
from levelog_processors import waiting
from levelog_store.tables import decisions, wakeups
from rigs.kinds import Pod
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.typed import Web
from rigs.webs import pod, web

SHORT = timedelta(milliseconds=100)
LOOPERS = [f"loops-{number}" for number in range(6)]


op = Operator("webs")
tried: list[str] = []
"""Webs that the view was called for and looked up something."""


@op.index
def there(pod: Pod) -> Iterator[tuple[str, str]]:
    yield pod.metadata.name, "there"


@op.view(timeout=SHORT)
def looks(web: Web, there: Index[str, str]) -> Level[list[str]]:
    found = list(there["good"])
    tried.append(web.metadata.name)
    while web.spec.image == "loops":
        pass
    return Level(found, found)


@op.view
def others(pod: Pod) -> Level[int]:
    return Level(1, 1)


async def decided(stack: Processing) -> list[str]:
    """Names of the objects, in the order in which they were decided on."""
    async with stack.database.reading() as connection:
        parents = (await connection.execute(select(decisions.c.parent).order_by(decisions.c.ordinal))).scalars()
        return [parent.rpartition("/")[2] for parent in parents]


async def test_a_second_object_that_a_view_loops_for_is_tried_once_all_else_is_decided(
    nats_server: NatsServer, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LEAST", 2)  # fewer than there are to loop for
    tried.clear()
    records = [web(name, 2 + number, image="loops") for number, name in enumerate(LOOPERS)]
    async with Processing(nats_server.url, database_url, [op]) as stack:
        await stack.begin(*records, web("fine", 10), pod("good", 11))
        order = await decided(stack)
        levels = {name: await stack.level(name) for name in (*LOOPERS, "fine", "good")}
        due = {row["parent"].rpartition("/")[2]: row["due_at"] for row in await stack.rows(wakeups)}
    assert sorted(order) == sorted([*LOOPERS, "fine", "good"])
    assert order[0] == LOOPERS[0]
    assert order[1] == "good"
    assert sorted(tried) == sorted([*LOOPERS, "fine"])
    assert {name: level["status"] for name, level in levels.items()} == {
        **dict.fromkeys(LOOPERS, "failed"),
        "fine": "in_sync",
        "good": "in_sync",
    }
    assert set(due) == set(LOOPERS)
    for name in LOOPERS:
        assert due[name] - levels[name]["evaluated_at"] >= timedelta(minutes=15), "its pause is as it was"
