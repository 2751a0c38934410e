"""The history of a resource goes back, as after a restore of etcd: what is told next is true, and nothing before it."""

from sqlalchemy import update

from levelog_base.wire.objects import Version
from levelog_base.wire.records import HistoryReverted
from levelog_store.tables import intents
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.webs import NOON, PODS, lists_done


def went_back(since: int, version: int) -> HistoryReverted:
    return HistoryReverted(resource=PODS, since=Version(since), version=Version(version), time=NOON)


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
