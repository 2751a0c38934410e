"""What a function takes for chance is the same in each replay, and another for each object, round and key."""

from collections.abc import Iterator
from random import Random

import msgspec

from levelog import Intent, Level, Operator, Resource, create
from levelog.secrets.redaction import Redactor
from levelog_processors.program import Program
from rigs.histories import Told, Web, told
from rigs.inorder import decided_in_order

op = Operator("webs")


class Secret(Resource, version="v1", plural="secrets"):
    pass


@op.view
def password(web: Web) -> Level[int]:
    return Level(desired=1, actual=0)


@op.reconcile(password, writes={Secret: ["create"]})
def generate(web: Web, chance: Random) -> Iterator[Intent]:
    text = {"password": f"{chance.getrandbits(128):x}"}
    yield create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": web.metadata.name}, "stringData": text})


CHANGES = [("listed", "", 0, "", 0), ("seen", "shop", 1, "a", 1), ("seen", "blog", 1, "a", 1)]


async def decided(key: bytes | None) -> list[dict[str, object]]:
    found = await decided_in_order(Program([op]), Told(told(CHANGES), 1000), redactor=Redactor(key))
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
