"""A plain parent wakes its view for the places that were looked at, and for nothing else."""

from collections.abc import Mapping
from typing import Any

from levelog import Level, Operator
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.typed import Web
from rigs.webs import WEBS, web


def reading_places() -> Operator:
    op = Operator("webs")

    @op.view(of=Web)
    def image(web: Mapping[str, Any]) -> Level[Any]:
        return Level(web["spec"]["image"], "a" if "paused" not in web["metadata"].get("labels", {}) else None)

    return op


async def test_invariant_6_a_plain_parent_wakes_only_for_the_places_that_were_looked_at(
    nats_server: NatsServer, database_url: str
) -> None:
    async with Processing(nats_server.url, database_url, [reading_places()]) as stack:
        last = await stack.listed(web("shop", 1), version=1, of=[WEBS])
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
