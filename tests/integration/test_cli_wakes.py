"""`levelog wakes` as people run it: on files, and as a webhook."""

import asyncio
import json
from pathlib import Path

import aiohttp
from typer.testing import CliRunner

from levelog_base.wire.records import ObjectSeen, SyncStarted
from levelog_cli.main import app
from levelog_log.publisher import BatchPublisher
from levelog_wakes.webhook import hear
from rigs.auditlogs import PlantedLog, ready_sets
from rigs.levelog import Levelog
from rigs.logs import new_log, writer_for
from rigs.nats import NatsServer


def beating() -> list[str]:
    log = PlantedLog()
    log.exists("shops.example.com", "s", status={})
    for beat in range(20):
        log.get("op", 15.0 * beat, "shops.example.com", "s")
    return log.lines()


def test_a_file_gives_a_table_or_json(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    file.write_text("\n".join(beating()))
    shown = CliRunner().invoke(app, ["wakes", str(file)], env={"COLUMNS": "200"})
    assert "15 s ± 0.00 s" in shown.output, shown.output
    assert "none of its wakes changed anything" in shown.output
    told = json.loads(CliRunner().invoke(app, ["wakes", str(file), "--json"]).output)
    assert [each["wakes"] for each in told["woken"]] == [20]
    assert told["woken"][0]["says"][0] == "none of its wakes changed anything"


def test_a_file_that_holds_no_audit_event_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "operator.py"
    file.write_text("op = 1\nat = 2\n")
    refused = CliRunner().invoke(app, ["wakes", str(file)])
    assert refused.exit_code == 2
    assert refused.stderr == "levelog: no event of an audit log: 2 lines are cut or no audit events, and left out " + (
        f"(first: {file.name}:1)\n"
    )


def test_a_bundle_has_the_bodies_that_an_audit_log_of_metadata_lacks(tmp_path: Path) -> None:
    log, file, bundle = ready_sets("Metadata"), tmp_path / "audit.log", tmp_path / "shop.jsonl"
    file.write_text("\n".join(log.lines()))
    log.write_bundle(bundle)
    without = CliRunner().invoke(app, ["wakes", str(file)], env={"COLUMNS": "200"})
    assert "waits for anything but the status of the statefulsets.apps" in without.output, without.output
    given = CliRunner().invoke(app, ["wakes", str(file), "--bundle", str(bundle)], env={"COLUMNS": "200"})
    assert "waits for status.readyReplicas of the statefulsets.apps that it owns" in given.output, given.output
    assert "precision 100%, recall 100%" in given.output


async def test_levelogs_log_has_them_as_well(tmp_path: Path, nats_server: NatsServer) -> None:
    levelog, log, file = Levelog(tmp_path), ready_sets("Metadata"), tmp_path / "audit.log"
    file.write_text("\n".join(log.lines()))
    async with new_log(nats_server) as stream:
        publisher, writer = BatchPublisher(stream), writer_for(stream)
        shared = ["wakes", str(file), "--log", "--nats-url", nats_server.url, "--cluster", stream.cluster]
        assert "has no list of a resource" in await levelog.refused(*shared, status=2)
        resources = {each.record.key.group_resource for each in log.records if isinstance(each.record, ObjectSeen)}
        for each in resources:
            listed = SyncStarted(resource=each, sync_id="one", time=log.records[0].record.time)
            await publisher.publish(writer.to_all_partitions(listed))
        messages = [writer.message(each.record) for each in log.records if isinstance(each.record, ObjectSeen)]
        for first in range(0, len(messages), 500):
            await publisher.publish(messages[first : first + 500])
        given = await levelog.ends(*shared)
    assert "waits for status.readyReplicas of the statefulsets.apps that it owns" in given.stdout, given


def test_bodies_of_what_is_heard_now_are_refused() -> None:
    refused = CliRunner().invoke(app, ["wakes", "--listen", "127.0.0.1:0", "--log"])
    assert refused.exit_code == 2
    assert "--listen" in refused.output


def test_neither_file_nor_address_is_misuse() -> None:
    assert CliRunner().invoke(app, ["wakes"]).exit_code == 2
    assert CliRunner().invoke(app, ["wakes", "/nowhere/audit.log"]).exit_code == 2


async def test_a_webhook_takes_lists_until_it_is_stopped() -> None:
    address = asyncio.get_running_loop().create_future()
    listening = asyncio.create_task(hear("127.0.0.1", 0, on_listening=address.set_result))
    events = {"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": [*map(json.loads, beating())]}
    async with aiohttp.ClientSession() as session, session.post(await address, json=events) as said:
        assert said.status == 200
    listening.cancel()
    assert [each.wakes for each in (await listening).woken] == [20]
