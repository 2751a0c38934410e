"""Quiet namespaces beside one that has asked for much: what they ask for is decided and claimed among the first."""

from datetime import timedelta

from levelog import Level, Operator
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import ObjectSeen
from levelog_processors.decide.tally import BATCH
from levelog_processors.waiting import LEAST
from levelog_store.actuate.claims import claim
from levelog_store.tables import decisions
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.shown import Web
from rigs.webs import seen

NOISY = 1000


def web_of(namespace: str, number: int, version: int) -> ObjectSeen:
    key = ObjectKey(group="example.com", resource="webs", namespace=namespace, name=f"web-{number}")
    return seen(key, version, f"uid-{namespace}-{number}", {"replicas": 1, "image": "a"})


async def test_quiet_namespaces_are_decided_on_in_the_first_batch_and_claimed_with_the_first_writes(
    nats_server: NatsServer, database_url: str
) -> None:
    async with Processing(nats_server.url, database_url) as stack:
        noisy = [web_of("noisy", number, number + 1) for number in range(NOISY)]
        quiet, later = web_of("quiet", 0, NOISY + 1), web_of("later", 0, NOISY + 2)
        await stack.begin(*noisy, quiet, version=NOISY + 1)
        decided = sorted(await stack.rows(decisions), key=lambda row: row["ordinal"])
        assert len(decided) == NOISY + 1
        assert [row["parent"] for row in decided].index(str(quiet.key)) < BATCH
        await stack.folded(await stack.tell(later))
        async with stack.database.transaction() as connection:
            first = await claim(connection, stack.scope, "one", limit=10, lease=timedelta(minutes=5))
        assert [each.parent for each in first][1:3] == [str(quiet.key), str(later.key)]


async def test_levels_that_take_long_are_decided_few_at_a_time_so_that_a_quiet_namespace_comes_between(
    nats_server: NatsServer, database_url: str
) -> None:
    op, portions = Operator("slow"), list[int]()

    @op.view
    def sums(web: Web) -> Level[int]:
        return Level(desired=0, actual=0 * sum(range(200_000)))  # longer than a moment for `LEAST` of them, anywhere

    async with Processing(nats_server.url, database_url, [op]) as stack:
        noisy = [web_of("noisy", number, number + 1) for number in range(4 * LEAST)]
        last = await stack.listed(*noisy, version=len(noisy))
        processor = stack.start()
        processor.health.on_batch = lambda batch, _seconds: portions.append(len(batch.decided))
        await stack.folded(last)
    assert (sum(portions), max(portions)) == (4 * LEAST, LEAST)
