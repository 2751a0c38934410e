"""What a function takes for chance is the same in each replay, and another for each object, round and key."""

from collections.abc import AsyncGenerator, Iterator
from random import Random

import msgspec

from levelog import Intent, Level, Operator, Resource, create
from levelog.secrets.redaction import Redactor
from levelog.wire.objects import Application, Cluster
from levelog.wire.records import LoggedRecord
from levelog_processors.program import Program
from levelog_replay.scratch import Origin
from rigs.histories import PARTITIONS, told
from rigs.inorder import decided_in_order

op = Operator("webs")


class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass


class Secret(Resource, version="v1", plural="secrets"):
    pass


@op.view
def password(web: Web) -> Level[int]:
    return Level(desired=1, actual=0)


@op.reconcile(password, writes={Secret: ["create"]})
def generate(web: Web, chance: Random) -> Iterator[Intent]:
    text = {"password": f"{chance.getrandbits(128):x}"}
    yield create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": web.metadata.name}, "stringData": text})


class Told:
    """A history of two Webs."""

    def __init__(self) -> None:
        self.told = told([("listed", "", 0, "", 0), ("seen", "shop", 1, "a", 1), ("seen", "blog", 1, "a", 1)])
        self.first, self.last = 1, len(self.told)
        self.origin = Origin(cluster=Cluster("cluster"), application=Application("webs"), partitions=PARTITIONS)

    async def records(self, start: int = 0) -> AsyncGenerator[list[LoggedRecord]]:
        yield [each for each in self.told if each.sequence >= start]


async def decided(key: bytes | None) -> list[dict[str, object]]:
    found = await decided_in_order(Program([op]), Told(), redactor=Redactor(key))
    return msgspec.json.decode(found, type=list[dict[str, object]])


async def test_replays_take_the_same_for_chance_and_other_keys_something_else() -> None:
    first, again, other = [await decided(key) for key in (b"k" * 16, b"k" * 16, b"other" * 4)]
    assert {each["status"] for each in first} == {"settling"}
    assert first == again
    assert first[0]["intents"] != other[0]["intents"]
    assert first[0]["intents"] != first[1]["intents"]


async def test_without_a_key_there_is_no_chance() -> None:
    [one, _] = await decided(None)
    assert one["status"] == "failed"
    assert "LEVELOG_REDACTION_KEY_FILE" in str(one["reason"])
