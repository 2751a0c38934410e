"""A view that loops for some objects costs these alone: whatever else is due is decided before, and beside it."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import select

from levelog import Index, Level, Operator, Resource, Struct
from levelog_processors.decide import evaluating
from levelog_store.tables import decisions, wakeups
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.waiting import until
from rigs.webs import pod, web

SHORT = timedelta(milliseconds=100)
LOOPERS = [f"loops-{number}" for number in range(6)]


class Spec(Struct):
    image: str = ""


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: Spec


class Pod(Resource, version="v1", plural="pods"):
    pass


class Looping:
    """Two views, one of which loops for Webs with the image `loops`."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        """Webs that the view was called for and looked up something."""
        self.is_second = threading.Event()
        """It was called for more than one that it loops for."""
        self.released = threading.Event()
        """Ends the loops."""
        self.operator = Operator("webs")

        @self.operator.index
        def there(pod: Pod) -> Iterator[tuple[str, str]]:
            yield pod.metadata.name, "there"

        @self.operator.view(timeout=SHORT)
        def looks(web: Web, there: Index[str, str]) -> Level[list[str]]:
            found = list(there["good"])
            self.tried.append(web.metadata.name)
            if sum(name.startswith("loops") for name in self.tried) > 1:
                self.is_second.set()
            while web.spec.image == "loops" and not self.released.is_set():
                pass
            return Level(found, found)

        @self.operator.view
        def others(pod: Pod) -> Level[int]:
            return Level(1, 1)


@pytest.fixture
def looping() -> Iterator[Looping]:
    found = Looping()
    yield found
    found.released.set()


async def decided(stack: Processing) -> list[str]:
    """Names of the objects, in the order in which they were decided on."""
    async with stack.database.reading() as connection:
        parents = (await connection.execute(select(decisions.c.parent).order_by(decisions.c.ordinal))).scalars()
        return [parent.rpartition("/")[2] for parent in parents]


async def test_a_second_object_that_a_view_loops_for_is_tried_once_all_else_is_decided(
    nats_server: NatsServer, database_url: str, looping: Looping
) -> None:
    records = [web(name, 2 + number, image="loops") for number, name in enumerate(LOOPERS)]
    async with Processing(nats_server.url, database_url, [looping.operator]) as stack:
        last = await stack.listed(*records, web("fine", 10), pod("good", 11))
        stack.start()
        await stack.folded(last)
        order = await decided(stack)
        levels = {name: await stack.level(name) for name in (*LOOPERS, "fine", "good")}
        due = {row["parent"].rpartition("/")[2]: row["due_at"] for row in await stack.rows(wakeups)}
    assert sorted(order) == sorted([*LOOPERS, "fine", "good"])
    assert set(order[:2]) == {LOOPERS[0], "good"}
    assert sorted(looping.tried) == sorted([*LOOPERS, "fine"])
    assert {name: level["status"] for name, level in levels.items()} == {
        **dict.fromkeys(LOOPERS, "failed"),
        "fine": "in_sync",
        "good": "in_sync",
    }
    assert set(due) == set(LOOPERS)
    for name in LOOPERS:
        assert due[name] - levels[name]["evaluated_at"] >= timedelta(minutes=15), "its pause is as it was"


async def test_a_view_that_loops_once_more_holds_up_no_other_object(
    nats_server: NatsServer, database_url: str, looping: Looping
) -> None:
    async with Processing(nats_server.url, database_url, [looping.operator]) as stack:
        last = await stack.listed(web("loops-0", 2, image="loops"))
        stack.start()
        await stack.folded(last)
        for view in stack.program.views.values():
            view.handler.timeout = timedelta(minutes=5)
        await stack.tell(web("loops-1", 3, image="loops"))
        await until_set(looping.is_second)
        await stack.tell(web("fine", 4))
        for version, name in enumerate(("good", "better"), 5):
            await stack.tell(pod(name, version))

            async def is_decided(name: str = name) -> bool:
                return await stack.find_level(name) is not None

            await until(is_decided, what="the decision on another object")
        assert await decided(stack) == ["loops-0", "good", "better"], "one object of the view at a time"
        assert looping.tried == ["loops-0", "loops-1"], "in a thread, where its call goes on"
        looping.released.set()

        async def are_in_sync() -> bool:
            found = [await stack.find_level(name) for name in ("loops-1", "fine")]
            return all(level is not None and level["actual"] == b'["there"]' for level in found)

        await until(are_in_sync, what="the decisions on the other objects of the view")


async def test_a_view_that_loops_for_the_first_time_holds_up_no_other_object_until_its_time_is_over(
    nats_server: NatsServer, database_url: str, looping: Looping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluating, "MOST_HERE", SHORT)
    async with Processing(nats_server.url, database_url, [looping.operator]) as stack:
        for view in stack.program.views.values():
            view.handler.timeout = timedelta(minutes=5)
        last = await stack.listed(web("loops-0", 2, image="loops"))
        stack.start()
        await stack.tell(pod("good", 5))

        async def is_decided() -> bool:
            return await stack.find_level("good") is not None

        await until(is_decided, what="the decision on another object")
        assert await decided(stack) == ["good"]
        looping.released.set()
        await stack.folded(last)
        assert (await stack.level("loops-0"))["status"] == "in_sync"
        assert looping.tried == ["loops-0", "loops-0"], "once in the event loop's thread, once in another"


async def until_set(event: threading.Event) -> None:
    async def is_set() -> bool:
        return event.is_set()

    await until(is_set, what="a second call")
