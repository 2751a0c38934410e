from collections.abc import Iterator
from datetime import timedelta

from msgspec.structs import replace

from levelog import Index, Level, Operator
from levelog_base.wire.objects import Version
from levelog_base.wire.records import BookmarkNoted
from levelog_store.tables import index_entries, levels
from rigs.kinds import Pod, Web
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.simulated import simulated
from rigs.webs import NOON, PODS, pod, web

HOUR = timedelta(hours=1)


op = Operator("webs")


@op.index(expires=HOUR)
def recent(pod: Pod) -> Iterator[tuple[str, str]]:
    """Pods that changed within an hour, by namespace."""
    yield pod.metadata.namespace, pod.metadata.name


@op.view
def activity(web: Web, recent: Index[str, str]) -> Level[list[str]]:
    return Level(desired=[], actual=sorted(recent[web.metadata.namespace]))


async def actual(stack: Processing) -> bytes:
    [level] = await stack.rows(levels)
    found: bytes = level["actual"]
    return found


async def test_the_time_of_the_log_removes_entries_and_wakes_their_readers(
    nats_server: NatsServer, database_url: str
) -> None:
    def tick(minutes: int) -> BookmarkNoted:
        return BookmarkNoted(resource=PODS, version=Version(9), time=NOON + timedelta(minutes=minutes))

    async with Processing(nats_server.url, database_url, [op]) as stack:
        await stack.begin(web("shop", 1), pod("p", 2), pod("q", 3), version=4)
        assert await actual(stack) == b'["p","q"]'
        await stack.folded(await stack.tell(replace(pod("q", 5), time=NOON + timedelta(minutes=30))))
        await stack.folded(await stack.mark(tick(60)))
        assert await actual(stack) == b'["q"]'
        await stack.folded(await stack.mark(tick(90)))
        assert await actual(stack) == b"[]"
        assert await stack.rows(index_entries) == []
        await stack.folded(await stack.tell(replace(pod("p", 6), time=NOON + timedelta(minutes=91))))
        assert await actual(stack) == b'["p"]'


def test_a_simulation_lets_entries_expire_when_time_passes() -> None:
    with simulated(
        op,
        {"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "shop", "namespace": "default"}},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"containers": [{"name": "web", "image": "nginx"}]},
        },
    ) as simulation:
        assert simulation.level("activity", "default", "shop").actual == ["p"]
        simulation.advance(timedelta(minutes=59))
        assert simulation.level("activity", "default", "shop").actual == ["p"]
        simulation.advance(timedelta(minutes=1))
        assert simulation.level("activity", "default", "shop").actual == []
