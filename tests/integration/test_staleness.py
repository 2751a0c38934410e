from collections.abc import Iterator
from datetime import timedelta

from levelog import Index, Level, Operator, Owner
from levelog_base.wire.objects import Version
from levelog_base.wire.records import BookmarkNoted, GapNoted
from levelog_store.look.contact import read_inputs
from levelog_store.tables import key_versions, levels, syncs, wakeups
from rigs.kinds import Pod, Web
from rigs.nats import NatsServer
from rigs.processing import PARTITIONS, Processing
from rigs.waiting import until
from rigs.webs import NOON, PODS, WEBS, lists_done, pod, web


def operator() -> Operator:
    op = Operator("webs")

    @op.index
    def pods(pod: Pod) -> Iterator[tuple[Owner, str]]:
        if owner := pod.metadata.controlled_by(Web):
            yield owner, pod.metadata.name

    @op.view
    def freshness(web: Web, pods: Index[Owner, str]) -> Level[bool]:
        return Level(False, pods.is_stale)

    @op.view
    def others(web: Web, pods: Index[Owner, str]) -> Level[int]:
        return Level(0, len(pods[web.as_owner]))

    return op


async def statuses(stack: Processing) -> dict[str, str]:
    return {row["view"].partition("/")[2]: row["status"] for row in await stack.rows(levels)}


async def test_a_view_that_asks_is_woken_when_history_is_lost_and_when_it_is_listed_again_alone(
    nats_server: NatsServer, database_url: str
) -> None:
    async with Processing(nats_server.url, database_url, [operator()]) as stack:
        processor = await stack.begin(web("shop", 1), version=2)
        assert await statuses(stack) == {"freshness": "in_sync", "others": "in_sync"}
        later = NOON + timedelta(minutes=1)
        await stack.folded(await stack.mark(BookmarkNoted(resource=PODS, version=Version(7), time=later)))
        heard = {(row["resource"], row["heard_at"]) for row in await stack.rows(syncs)}
        assert heard == {("pods", later), ("webs.example.com", NOON)}
        assert len(await stack.rows(syncs)) == 2 * PARTITIONS
        assert await stack.rows(wakeups) == []
        await stack.folded(await stack.mark(lists_done(WEBS, 9)[0]))
        assert processor.calls.functions == {"webs/freshness": 1, "webs/others": 1}
        await stack.folded(await stack.mark(GapNoted(resource=PODS, reason="410", since=Version(7), time=NOON)))
        assert await statuses(stack) == {"freshness": "drifting", "others": "in_sync"}
        told = dict(processor.calls.functions)  # of "freshness" two, or more if the marks came in several batches
        begun, ended = lists_done(PODS, 9)
        await stack.folded(await stack.mark(begun))
        assert await statuses(stack) == {"freshness": "drifting", "others": "in_sync"}
        assert processor.calls.functions == told
        await stack.folded(await stack.mark(ended))
        assert await statuses(stack) == {"freshness": "in_sync", "others": "in_sync"}
        assert processor.calls.functions["webs/freshness"] > told["webs/freshness"] > 1
        assert processor.calls.functions["webs/others"] == told["webs/others"] == 1


async def test_an_index_is_not_stale_while_its_objects_are_listed_for_the_first_time(
    nats_server: NatsServer, database_url: str
) -> None:
    async with Processing(nats_server.url, database_url, [operator()]) as stack:
        begun, _ = lists_done(PODS, 1)
        await stack.mark(begun)
        await stack.begin(web("shop", 1), pod("shop-0", 2), version=2)
        assert [row["key"] for row in await stack.rows(key_versions) if row["index"] == "@contact"] == []
        assert await statuses(stack) == {"freshness": "in_sync", "others": "in_sync"}


async def test_levels_say_from_where_to_where_history_is_missing_until_it_is_listed(
    nats_server: NatsServer, database_url: str
) -> None:
    reason = "history is missing from 4 to 5: at least 2 records of partition 0"
    async with Processing(nats_server.url, database_url, [operator()]) as stack:
        await stack.begin(web("shop", 1), version=2)
        for mark, errors in (
            (GapNoted(resource=WEBS, reason=reason, since=Version(2), time=NOON), [("webs.example.com", reason)]),
            (lists_done(WEBS, 9)[0], [("webs.example.com", reason)]),
            (lists_done(WEBS, 9)[1], []),
        ):
            await stack.folded(await stack.mark(mark))
            async with stack.database.reading() as connection:
                inputs = await read_inputs(connection, stack.scope)
                assert [(each.resource, each.error) for each in inputs if each.error] == errors


async def test_invariant_5_two_processors_agree_on_what_is_stale(nats_server: NatsServer, postgres_url: str) -> None:
    async with Processing(nats_server.url, postgres_url, [operator()]) as stack:
        stack.start("one")
        await stack.start_more("two")
        await stack.folded(await stack.listed(*[web(f"shop{number}", number + 1) for number in range(8)], version=20))
        begun, ended = lists_done(PODS, 30)
        for mark, status in ((begun, "drifting"), (ended, "in_sync")):
            await stack.mark_in_turn(mark)

            async def are_all(wanted: str = status) -> bool:
                rows = [row for row in await stack.rows(levels) if row["view"] == "webs/freshness"]
                return [row["status"] for row in rows] == [wanted] * 8

            await until(are_all, f"all levels {status}")
