"""What holds for each command: loading what it needs, documented statuses, no secrets; then retry and wakes."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml
from typer.testing import CliRunner

from levelog_base.wire.records import ObjectSeen, SyncStarted
from levelog_cli.main import app
from levelog_log.publisher import BatchPublisher
from levelog_sandbox import Denial, Sandbox
from levelog_wakes.webhook import hear
from rigs.auditlogs import PlantedLog, ready_sets
from rigs.levelog import WEBS, WEBS_FILE, Levelog, define_webs
from rigs.logs import new_log, writer_for
from rigs.nats import NatsServer
from rigs.natsusers import new_seed
from rigs.ports import free_port
from rigs.recorded import Recorded, record_webs
from rigs.waiting import until

long, param = pytest.mark.long, pytest.param
SHOP = "webs.example.com/default/shop"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recorded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Recorded]:
    async with NatsServer() as server:
        yield await record_webs(server.url, tmp_path_factory.mktemp("recorded"))


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        param(["why", SHOP], 0, "webs/pods", marks=long),
        (["replay", str(WEBS_FILE)], 0, "SAME"),
        (["run", str(WEBS_FILE), "--kubeconfig", "none"], 2, "none"),
        param(["migrate"], 0, "is at revision", marks=long),
        param(["levels", "shop"], 0, "webs/pods", marks=long),
        param(["retry", "shop"], 2, "shop", marks=long),
        param(["history", SHOP], 0, "spec.replicas", marks=long),
        param(["writers", SHOP], 0, "WRITER", marks=long),
        param(["export", "all.jsonl"], 0, "5 decisions", marks=long),
        param(["doctor", str(WEBS_FILE), "--kubeconfig", "none"], 1, "none", marks=long),
        param(["crd", str(WEBS_FILE)], 0, "CustomResourceDefinition", marks=long),
        param(["import-crd", str(WEBS / "crd.yaml")], 0, "class Web(", marks=long),
        param(["rbac", str(WEBS_FILE)], 0, "ClusterRole", marks=long),
        param(["ingest", str(WEBS_FILE), "--kubeconfig", "none"], 2, "none", marks=long),
        param(["actuate", str(WEBS_FILE), "--kubeconfig", "none"], 2, "none", marks=long),
        param(["process", "none.py"], 2, "none.py does not exist", marks=long),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
async def test_it_loads_what_it_needs(recorded: Recorded, arguments: list[str | Path], status: int, words: str) -> None:
    ended = await recorded.levelog.ends(*arguments, env=recorded.env, is_preloaded=False)
    assert (ended.status, words in ended.stdout + ended.stderr) == (status, True), ended
    assert "Traceback" not in ended.stderr, ended


NARROWER = (WEBS / "crd.yaml").read_text().replace("type: integer", "type: string")


async def test_each_status_is_that_of_a_command(tmp_path: Path) -> None:
    levelog = Levelog(tmp_path)
    assert (await levelog.ends("migrate")).status == 0
    assert (await levelog.ends("levels", "--no-such-option")).status == 2
    assert "holds no application yet" in await levelog.refused("levels", status=2)
    (tmp_path / "earlier.yaml").write_text(NARROWER)
    assert (await levelog.ends("crd", WEBS / "webs.py", "--against", tmp_path / "earlier.yaml")).status == 1
    away = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    await levelog.refused("levels", "--database-url", away, status=1)


def test_a_command_whose_reader_is_gone_ends_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [Path(sys.executable).with_name("levelog"), "crd", WEBS / "webs.py"],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "")


async def test_a_signal_ends_a_command_at_once_while_it_prints_definitions(tmp_path: Path) -> None:
    levelog = Levelog(tmp_path)
    (tmp_path / "long.py").write_text("print('begun', flush=True)\nwhile True:\n    pass\n")
    with levelog.start("crd", "long.py") as running:
        await running.says("begun")
        assert await running.stops() == 0


CANARY = "canary5ecret"
COMMANDS = ("run", "ingest", "process", "actuate", "doctor", "migrate", "levels", "history")


@pytest.mark.parametrize("secret", [f"p@{CANARY}", f"a,/{CANARY}?#"])
async def test_no_command_shows_a_secret_of_a_url_or_a_file(tmp_path: Path, secret: str) -> None:
    levelog = Levelog(tmp_path)
    seed = tmp_path / "seed.nk"
    seed.write_text(new_seed() + CANARY)
    env = {
        "LEVELOG_NATS_URL": f"nats://me:{secret}@127.0.0.1:{free_port()}",
        "LEVELOG_DATABASE_URL": f"postgresql://me:{secret}@127.0.0.1:{free_port()}/x",
        "LEVELOG_LOG_LEVEL": "debug",
        "LEVELOG_DEBUG": "1",
    }
    for command in COMMANDS:
        file = [WEBS_FILE] if command in {"run", "ingest", "process", "actuate", "doctor"} else []
        named = ["webs.example.com/default/shop"] if command == "history" else []
        ended = await levelog.ends(command, *file, *named, env=env)
        assert ended.status != 0, (command, ended)
        assert CANARY not in ended.stdout + ended.stderr, (command, ended)
    ended = await levelog.ends(
        "doctor", "--nats-nkey-file", seed, env={**env, "LEVELOG_NATS_URL": f"nats://127.0.0.1:{free_port()}"}
    )
    assert f"{seed} (--nats-nkey-file) cannot be used" in ended.stdout, ended
    assert seed.read_text()[:10] not in ended.stdout + ended.stderr
    assert CANARY not in ended.stdout + ended.stderr


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A cluster in which nobody may make the pod that a Web asks for."""
    async with Sandbox(pods_run=True) as started:
        await define_webs(started)
        started.access.denials.append(Denial("patch", "pods"))
        shop = yaml.safe_load((WEBS / "shop.yaml").read_text())
        shop["spec"]["replicas"] = 1
        started.user.create(shop)
        yield started


async def test_a_level_that_failed_is_tried_again_by_the_process_that_runs_or_by_the_next_one(
    sandbox: Sandbox, levelog: Levelog
) -> None:
    async def failed_in(least: int) -> list[dict[str, Any]]:
        return [one for one in await levelog.levels() if one["status"] == "failed" and one["round"] >= least]

    async def is_told() -> bool:  # not while the level is in a round
        said = f"webs/pods of {SHOP} was failed, and is tried again\n"
        return await levelog.ends("retry", "default/shop") == (0, said, "")

    with levelog.start("run", WEBS_FILE) as running:
        (failed,) = await until(lambda: failed_in(1), "a level that failed", seconds=90, pause=0.25)
        assert [(write["target"], write["state"]) for write in failed["writes"]] == [("pods/default/shop-0", "failed")]
        assert "403 Forbidden" in failed["writes"][0]["error"]
        await until(is_told, "a failed level that is tried again", seconds=90)
        await until(lambda: failed_in(failed["round"] + 1), "another round in vain", seconds=90, pause=0.25)
        assert await running.stops() == 0
    sandbox.access.denials.clear()
    assert (await levelog.ends("retry", "--all-failed")).status == 0

    async def is_in_sync() -> bool:
        return [one["status"] for one in await levelog.levels()] == ["in_sync"]

    with levelog.start("run", WEBS_FILE) as running:
        await until(is_in_sync, "a level in sync after another round", seconds=90, pause=0.25)
        refused = await asyncio.gather(
            levelog.refused("retry", "shop", status=2),
            levelog.refused("retry", "--all-failed", status=2),
            levelog.refused("retry", "mall", status=2),
            levelog.refused("retry", status=2),
            levelog.refused("retry", "shop", "--all-failed", status=2),
            levelog.refused("retry", "shop", "--view", "pod", status=2),
        )
    assert list(refused) == [
        f"there is nothing to try again: webs/pods of {SHOP} is in_sync",
        "no level is failed",
        "no level of a parent 'mall': `levelog levels` shows all that there are",
        "say what to try again: names of parents, or --all-failed",
        "say what to try again: names of parents, or --all-failed, not both",
        "no level of a view 'pod': `levelog levels` shows all that there are",
    ]


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
