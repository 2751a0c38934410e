"""A dry run tells what would be written; nothing is, and the next run writes it."""

import asyncio

from levelog_actuator.dryrun import DryRun
from levelog_base.secrets.redaction import Redactor
from rigs.acting import QUICK, WEBS, Acting
from rigs.waiting import until


async def test_a_dry_run_tells_each_write_and_leaves_it_to_the_next_run(acting: Acting) -> None:
    seen = {name: await acting.make("configmaps", name, data={"k": "1"}) for name in ("merged", "applied", "deleted")}
    web = await acting.make(WEBS, "w", spec={})
    new = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"k": "2"}}
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"n": "2"}}
    wanted = [
        acting.intent("create", body=new),
        acting.intent("patch", seen["merged"], body={"data": {"k": "2"}}),
        acting.intent("apply", seen["applied"], body=applied),
        acting.intent("patch_status", web, body={"status": {"ready": 1}}),
        acting.intent("delete", seen["deleted"]),
    ]
    effect = acting.intent("call", target=f"configmaps/{acting.namespace}/e", body={})
    await acting.decide(effect)
    keys = await acting.decide(*wanted)
    before = await acting.rows()
    dry = DryRun(acting.database, acting.scope, acting.client, acting.notifier, settings=QUICK, redactor=Redactor())
    running = asyncio.create_task(dry.run())

    async def is_told() -> bool:
        if running.done():
            running.result()
        return dry.told.keys() >= {*keys, effect["key"]}

    try:
        await until(is_told, "what would be written")
    finally:
        running.cancel()
        await asyncio.wait([running])
    place = acting.namespace
    assert [dry.told[key] for key in keys] == [
        f"create configmaps/{place}/new would be written: it is not there yet",
        f"patch configmaps/{place}/merged would be written: data.k",
        f"apply configmaps/{place}/applied would be written: data.n",
        f"patch_status {WEBS}/{place}/w would be written: status.ready",
        f"delete configmaps/{place}/deleted would be written",
    ]
    assert dry.told[effect["key"]] == f"call configmaps/{place}/e would be carried out"
    assert [request.query["dryRun"] for request in acting.sent()] == ["All"] * 5
    assert await acting.get("configmaps", "new") is None
    for name, made in seen.items():
        now = await acting.get("configmaps", name)
        assert now["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert await acting.rows() == before
    async with acting.running():
        receipts = await acting.receipts_of(keys)
    assert {receipt.outcome for receipt in receipts} == {"written"}
    assert len([request for request in acting.effective() if "dryRun" not in request.query]) == 5
