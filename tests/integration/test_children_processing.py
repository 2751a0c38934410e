"""Children in processors on a real log and real databases: what was applied is in the log, and shared by processors."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from levelog import Manifest, Operator
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import GroupResource, ObjectKey
from levelog_base.wire.projection import Applied, applied
from levelog_base.wire.records import ObjectSeen, ReceiptNoted
from levelog_cli.printing.planned import plan_lines
from levelog_processors.program import Program
from levelog_replay.calling import ReplayCaller
from levelog_replay.planning import plan
from levelog_store.connect.database import Database
from levelog_store.owners.scopes import find_scopes
from levelog_store.tables import intents
from rigs.kinds import ConfigMap, Web
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.webs import WEBS, lists_done, receipt, seen, web

CONFIG_MAPS = GroupResource(group="", resource="configmaps")


op = Operator("webs")


@op.children(Web, of=ConfigMap)
def config(web: Web) -> Manifest:
    metadata = {"name": web.metadata.name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "spec": {"cpu": "1000m"}}


def config_map(version: int, *, cpu: str = "1", **metadata: Any) -> ObjectSeen:
    """The child as a server shows it that writes quantities in a form of its own."""
    owner = {"apiVersion": "example.com/v1", "kind": "Web", "name": "shop", "uid": "uid-shop", "controller": True}
    key = ObjectKey(group="", resource="configmaps", namespace="default", name="shop")
    return seen(key, version, "uid-child", {"cpu": cpu}, ownerReferences=[owner], **metadata)


def receipt_of(row: dict[str, Any], answer: ObjectSeen) -> ReceiptNoted:
    """What an actuator notes of an apply that was answered with an object."""
    made: Applied | None = applied(msgspec.json.decode(row["body"]), msgspec.json.decode(answer.body))
    return replace(receipt(row, version=answer.version), target_uid=answer.uid, applied=made)


async def listed(stack: Processing, *records: ObjectSeen) -> None:
    marks = [lists_done(resource, 1) for resource in (WEBS, CONFIG_MAPS)]
    for begun, _ in marks:
        await stack.mark(begun)
    await stack.tell(*records)
    for _, ended in marks:
        await stack.mark(ended)


async def applied_once(stack: Processing) -> int:
    """Let the child be applied, and its answer come back; returns the last sequence."""
    await listed(stack, web("shop", 1))
    stack.start()
    await stack.folded(await stack.tell(web("other", 1)))
    await stack.claim()
    [row] = [row for row in await stack.rows(intents) if row["target"].endswith("/shop")]
    assert row["verb"] == "apply"
    last = await stack.tell(config_map(5), receipt_of(row, config_map(5)))
    await stack.folded(last)
    level = await stack.level("shop")
    assert (level["status"], level["round"]) == ("in_sync", 1)
    return last


async def test_invariant_13_what_was_applied_is_rebuilt_from_the_log_and_nothing_is_written(
    nats_server: NatsServer, database_url: str, tmp_path: Path
) -> None:
    async with Processing(nats_server.url, database_url, [op]) as stack:
        last = await applied_once(stack)
    async with Processing(nats_server.url, f"sqlite:///{tmp_path}/empty.db", [op]) as rebuilt:
        rebuilt.start()
        await rebuilt.folded(last)
        level = await rebuilt.level("shop")
        assert level["status"] == "in_sync"
        assert [row for row in await rebuilt.rows(intents) if row["target"].endswith("/shop")] == []


async def test_a_plan_says_how_many_deletions_may_follow_also_those_of_a_later_round(
    nats_server: NatsServer, database_url: str
) -> None:
    changed = Operator("webs")

    @changed.children(Web, of=ConfigMap)
    def config(web: Web) -> Manifest:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{web.metadata.name}-2"}}

    async with Processing(nats_server.url, database_url, [op]) as stack:
        await applied_once(stack)
    async with await Database.open(database_url, read_only=True) as database:
        async with database.reading() as connection:
            [scope] = await find_scopes(connection)
        caller = ReplayCaller(threads=1)
        planned = await plan(database, scope, Program([changed]), redactor=Redactor(), caller=caller)
    assert {write.verb for level in planned.levels for write in level.writes} == {"apply"}
    text = " ".join(" ".join(plan_lines(planned)).split())
    assert "1 deletion may follow, now or once all else is done: ConfigMap (1)" in text
