"""Entries of an index that expire, in a simulation and in SQL; unit/test_expiry has the rest."""

from collections.abc import Iterator
from datetime import timedelta

from levelog import Index, Level, Operator
from levelog_base.wire.objects import Version
from levelog_base.wire.records import BookmarkNoted
from levelog_store.tables import index_entries, levels
from rigs.kinds import Pod, Web, web
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.simulated import simulated
from rigs.webs import NOON, PODS
from rigs.webs import pod as seen_pod
from rigs.webs import web as seen_web

op = Operator("webs")


@op.index(expires=timedelta(hours=1))
def recent(pod: Pod) -> Iterator[tuple[str, str]]:
    yield pod.metadata.namespace, pod.metadata.name


@op.view
def activity(web: Web, recent: Index[str, str]) -> Level[list[str]]:
    return Level(desired=[], actual=sorted(recent[web.metadata.namespace]))


def test_a_simulation_lets_entries_expire_when_time_passes() -> None:
    spec = {"containers": [{"name": "web", "image": "nginx"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": spec}
    with simulated(op, web("shop"), pod) as simulation:
        for minutes, there in ((0, ["p"]), (59, ["p"]), (1, [])):
            simulation.advance(timedelta(minutes=minutes))
            assert simulation.level("activity", "default", "shop").actual == there


async def test_bookmarks_remove_expired_entries_from_sql_and_wake_who_reads_them(
    nats_server: NatsServer, database_url: str
) -> None:
    async with Processing(nats_server.url, database_url, [op]) as stack:
        await stack.begin(seen_web("shop", 1), seen_pod("p", 2), version=3)
        for minutes, there, entries in ((59, b'["p"]', 1), (60, b"[]", 0)):
            time = NOON + timedelta(minutes=minutes)
            await stack.folded(await stack.mark(BookmarkNoted(resource=PODS, version=Version(3), time=time)))
            [level] = await stack.rows(levels)
            assert (level["actual"], len(await stack.rows(index_entries))) == (there, entries)
