"""The history of a resource goes back, as after a restore of etcd: what is told next is true, and nothing before it."""

from collections.abc import Iterator

from sqlalchemy import update

from levelog import Index, Level, Operator, Owner
from levelog_base.wire.objects import Version
from levelog_base.wire.records import HistoryReverted
from levelog_store.tables import intents, levels, objects
from rigs.kinds import Pod, Web
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.waiting import until
from rigs.webs import NOON, PODS, deleted, lists_done, pod, web


def operator() -> Operator:
    op = Operator("webs")

    @op.index
    def pods(pod: Pod) -> Iterator[tuple[Owner, str]]:
        if owner := pod.metadata.controlled_by(Web):
            yield owner, pod.metadata.name

    @op.view
    def names(web: Web, pods: Index[Owner, str]) -> Level[list[str]]:
        return Level(["a", "b"], sorted(pods[web.as_owner]))

    @op.view
    def alone(web: Web) -> Level[int]:
        return Level(0, 0)

    return op


def went_back(since: int, version: int) -> HistoryReverted:
    return HistoryReverted(resource=PODS, since=Version(since), version=Version(version), time=NOON)


async def shown(stack: Processing) -> dict[str, str]:
    return {row["view"].partition("/")[2]: row["status"] for row in await stack.rows(levels)}


async def versions(stack: Processing) -> dict[str, int]:
    return {row["object"].rpartition("/")[2]: row["version"] for row in await stack.rows(objects)}


async def test_levels_that_read_it_are_blocked_until_a_list_which_is_taken_as_it_is(
    nats_server: NatsServer, database_url: str
) -> None:
    async with Processing(nats_server.url, database_url, [operator()]) as stack:
        pods = [pod("a", 20, owner="uid-shop"), pod("b", 30, owner="uid-shop"), pod("c", 31)]
        last = await stack.listed(web("shop", 1), *pods, version=31)
        await stack.tell(deleted(pod("c", 31), 32))
        processor = stack.start()
        await stack.folded(last)
        assert await shown(stack) == {"names": "in_sync", "alone": "in_sync"}
        await stack.until_folded_only(await stack.mark(went_back(32, 9)))

        async def is_blocked() -> bool:
            return await shown(stack) == {"names": "blocked", "alone": "in_sync"}

        await until(is_blocked, "the level that reads pods to be blocked")
        assert processor.calls.functions == {"webs/names": 1, "webs/alone": 1}
        begun, ended = lists_done(PODS, 9)
        await stack.mark(begun)
        await stack.tell(pod("a", 8, owner="uid-shop"))
        await stack.folded(await stack.mark(ended))
        assert await shown(stack) == {"names": "drifting", "alone": "in_sync"}
        assert await versions(stack) == {"shop": 1, "a": 8}
        await stack.folded(await stack.tell(pod("b", 10, owner="uid-shop"), pod("c", 11)))
        assert await shown(stack) == {"names": "in_sync", "alone": "in_sync"}
        assert await versions(stack) == {"shop": 1, "a": 8, "b": 10, "c": 11}


async def test_a_write_to_the_history_that_is_gone_is_waited_for_no_more(
    nats_server: NatsServer, database_url: str
) -> None:
    async with Processing(nats_server.url, database_url) as stack:
        row = await stack.first_write()
        of_it = update(intents).where(intents.c.key == row["key"])
        async with stack.database.transaction() as connection:
            await connection.execute(of_it.values(state="written", result_uid="uid-gone", result_version=99))
        await stack.until_folded_only(await stack.mark(went_back(99, 9)))
        begun, ended = lists_done(PODS, 9)
        await stack.mark(begun)
        await stack.folded(await stack.mark(ended))
        assert [each["round"] for each in await stack.rows(intents)] == [1, 2]
        assert [each["state"] for each in await stack.rows(intents)] == ["settled", "pending"]
