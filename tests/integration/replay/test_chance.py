"""What a function takes for chance is the same in each replay, and another for each object and key, and for each round
if it is a reconcile function."""

from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from levelog import Intent, Level, Manifest, Operator, create
from levelog_base.secrets.redaction import Redactor
from levelog_processors.program import Program
from rigs.histories import PARTITIONS, Told, Web, told
from rigs.inorder import decided_in_order
from rigs.kinds import Secret
from rigs.webs import lists_done, logged

op = Operator("webs")


@op.view
def password(web: Web) -> Level[int]:
    return Level(desired=1, actual=0)


@op.reconcile(password, writes={Secret: ["create"]})
def generate(web: Web, chance: Random) -> Iterator[Intent]:
    text = {"password": f"{chance.getrandbits(128):x}"}
    yield create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": web.metadata.name}, "stringData": text})


stable = Operator("webs")


@stable.children(Web, of=Secret)
def kept(web: Web, chance: Random) -> Manifest:
    text = {"password": f"{chance.getrandbits(128):x}"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": web.metadata.name}, "stringData": text}


CHANGES = [("listed", "", 0, "", 0), ("seen", "shop", 1, "a", 1), ("seen", "blog", 1, "a", 1)]


async def decided(operator: Operator, key: bytes | None) -> list[dict[str, object]]:
    records = told(CHANGES)
    for mark in lists_done(Secret.resource_type.group_resource, 100):
        for partition in range(PARTITIONS):
            records += logged([mark], first=len(records) + 1, partitions=PARTITIONS, partition=partition)
    found = await decided_in_order(Program([operator]), Told(records), redactor=Redactor(key))
    return msgspec.json.decode(found, type=list[dict[str, object]])


@pytest.mark.parametrize("operator", [op, stable], ids=["reconcile", "children"])
async def test_replays_take_the_same_for_chance_and_other_keys_something_else(operator: Operator) -> None:
    first, again, other = [await decided(operator, key) for key in (b"k" * 16, b"k" * 16, b"other" * 4)]
    assert {each["status"] for each in first} == {"settling"}
    assert first == again
    assert first[0]["intents"] != other[0]["intents"]
    assert first[0]["intents"] != first[1]["intents"]


@pytest.mark.parametrize("operator", [op, stable], ids=["reconcile", "children"])
async def test_without_a_key_there_is_no_chance(operator: Operator) -> None:
    [one, _] = await decided(operator, None)
    assert one["status"] == "failed"
    assert "LEVELOG_REDACTION_KEY_FILE" in str(one["reason"])
