"""What views look at wakes them, and nothing else does: objects by name, places in plain parents, filters."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from levelog import Intent, Level, Objects, Operator
from levelog_base.wire.records import ObjectDeleted, ObjectSeen
from levelog_store.tables import dependencies, levels
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.typed import Pod, Web
from rigs.webs import deleted, pod, web

SHOP = "webs.example.com/default/shop"


def reading_one_pod(then: Callable[[], Any] | None = None) -> Operator:
    """A view that looks up one pod; `then` is awaited by its reconcile function, between evaluation and decision."""
    op = Operator("webs")

    @op.view(reads=[Pod])
    def image(web: Web, objects: Objects) -> Level[str | None]:
        found = objects.get(Pod, f"{web.metadata.name}-0")
        return Level(web.spec.image, found.spec.containers[0].image if found else None)

    if then is not None:

        @op.reconcile(image)
        async def act(web: Web, level: Level[str | None]) -> list[Intent]:
            await then()
            return []

    return op


def reading_places() -> Operator:
    op = Operator("webs")

    @op.view(of=Web)
    def image(web: Mapping[str, Any]) -> Level[Any]:
        return Level(web["spec"]["image"], "a" if "paused" not in web["metadata"].get("labels", {}) else None)

    @op.index(of=Pod, when=lambda pod: pod["spec"]["containers"])
    def images(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        yield pod["metadata"]["name"], pod["spec"]["containers"][0]["image"]

    return op


async def test_an_object_that_is_looked_up_wakes_when_it_comes_changes_and_goes(
    nats_server: NatsServer, database_url: str
) -> None:
    async with Processing(nats_server.url, database_url, [reading_one_pod()]) as stack:
        last = await stack.listed(web("shop", 1, image="a"), pod("other", 2), version=2)
        processor = stack.start()
        calls = processor.calls.functions

        async def told(record: ObjectSeen | ObjectDeleted) -> tuple[str, int]:
            await stack.folded(await stack.tell(record))
            level = await stack.level("shop")
            return level["status"], calls["webs/image"]

        await stack.folded(last)
        assert [(row["index"], row["key"]) for row in await stack.rows(dependencies)] == [
            ("webs/@Pod", '["default","shop-0"]')
        ]
        assert await told(pod("other", 3, image="b")) == ("drifting", 1)
        assert await told(pod("shop-0", 4, image="b")) == ("drifting", 2)
        assert await told(pod("shop-0", 5, image="a")) == ("in_sync", 3)
        assert await told(pod("shop-0", 6, image="a", annotations={"n": "1"})) == ("in_sync", 3)
        assert await told(deleted(pod("shop-0", 7, image="a"), 8)) == ("drifting", 4)


async def test_invariant_6_a_plain_parent_wakes_only_for_the_places_that_were_looked_at(
    nats_server: NatsServer, database_url: str
) -> None:
    async with Processing(nats_server.url, database_url, [reading_places()]) as stack:
        last = await stack.listed(web("shop", 1), version=1)
        processor = stack.start()
        calls = processor.calls
        await stack.folded(last)
        assert calls.functions == {"webs/image": 1}
        noise = [web("shop", 10 + n, replicas=n, annotations={"n": str(n)}) for n in range(10)]
        for record in noise:  # each by itself, so that each could wake
            await stack.folded(await stack.tell(record))
        assert (calls.functions, calls.suppressed) == ({"webs/image": 1}, 0)
        await stack.folded(await stack.tell(web("shop", 30, labels={"a": "b"})))
        assert calls.functions == {"webs/image": 2}  # it saw that there are no labels, and now there are
        await stack.folded(await stack.tell(web("shop", 31, labels={"a": "c"})))
        assert calls.functions == {"webs/image": 2}
        await stack.folded(await stack.tell(web("shop", 32, labels={"paused": ""})))
        assert calls.functions == {"webs/image": 3}
        level = await stack.level("shop")
        assert (level["status"], level["actual"]) == ("drifting", b"null")
        await stack.folded(await stack.tell(web("shop", 33, deletionTimestamp="2026-01-01T00:00:00Z")))
        level = await stack.level("shop")
        assert level["status"] == "deleting"
        assert calls.spurious == 0


async def test_what_a_view_read_of_a_plain_parent_before_it_raised_wakes_it_again(
    nats_server: NatsServer, database_url: str
) -> None:
    async with Processing(nats_server.url, database_url, [reading_places()]) as stack:
        broken = web("shop", 1)
        broken = msgspec.structs.replace(broken, body=broken.body.replace(b'"image"', b'"picture"'))
        await stack.begin(broken, version=1)
        level = await stack.level("shop")
        assert level["status"] == "failed"
        assert "KeyError: 'image'" in level["reason"]
        await stack.folded(await stack.tell(web("shop", 2)))
        level = await stack.level("shop")
        assert level["status"] == "in_sync"


async def test_a_filter_that_raises_fails_its_parent_and_nobody_else(
    nats_server: NatsServer, database_url: str
) -> None:
    op = Operator("webs")

    @op.view(when=lambda web: 6 / web.spec.replicas > 1)
    def big(web: Web) -> Level[int]:
        return Level(web.spec.replicas, 3)

    @op.index
    def pods(pod: Pod) -> dict[str, str]:
        return {pod.metadata.name: ""}

    async with Processing(nats_server.url, database_url, [op]) as stack:
        await stack.begin(web("shop", 1, replicas=0), web("other", 2, replicas=3), version=2)
        found = {row["parent"]: (row["status"], row["reason"]) for row in await stack.rows(levels)}
        assert found == {
            SHOP: ("failed", "view webs/big: ZeroDivisionError: division by zero"),
            "webs.example.com/default/other": ("in_sync", ""),
        }
        await stack.folded(await stack.tell(web("shop", 3, replicas=3)))
        level = await stack.level("shop")
        assert (level["status"], level["reason"]) == ("in_sync", "")
