"""A receipt that comes once another actuator has taken its claim over."""

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import update

from levelog import Call, Index, Intent, Level, Operator, Resource, call
from levelog_base.wire.records import CallNoted
from levelog_store.tables import index_entries, intents
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.webs import receipt


class Web(Resource, group="example.com", version="v1", plural="webs"): ...


def operator() -> Operator:
    op = Operator("webs")

    @op.effect
    def page(request: str) -> int:
        raise AssertionError("no actuator runs here")

    @op.view
    def paged(web: Web, page: Index[str, Call[str, int]]) -> Level[bool]:
        return Level(desired=True, actual=bool(page[web.metadata.uid]))

    @op.reconcile(paged)
    def ask(web: Web) -> list[Intent]:
        return [call(page, web.metadata.name)]

    return op


async def test_it_raises_the_round_and_what_was_called_is_remembered_while_the_claim_stays_the_others(
    nats_server: NatsServer, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Processing(nats_server.url, database_url, [operator()]) as stack:
        row = await stack.first_write()
        async with stack.database.transaction() as connection:
            await connection.execute(update(intents).values(owner="another", attempts=2))
        late = replace(receipt({**row, "round": 5}), call=CallNoted(name="", request="shop", result=7))
        await stack.folded(await stack.tell(late))
        (held,) = await stack.rows(intents)
        assert (held["state"], held["owner"], held["receipt"]) == ("claimed", "another", None)
        assert (await stack.level("shop"))["round"] == 5
        assert "has lost the decisions on 1 level" in caplog.text
        assert "webs/paged of" in caplog.text
        (entry,) = await stack.rows(index_entries)
        assert (entry["index"], entry["key"]) == ("webs/page", '"uid-shop"')
        assert msgspec.json.decode(entry["value"])["result"] == 7
